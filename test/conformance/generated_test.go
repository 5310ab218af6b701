// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	page      = "../../docs/conformance.md"
	updateEnv = "FRESH_KCM_UPDATE"
)

// generated compares a part of the page with what a run found out, or with FRESH_KCM_UPDATE=1 writes it. The
// part is between two comments that name it.
func generated(t *testing.T, name, want string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	begin, end := "<!-- generated: "+name+" -->\n", "\n<!-- end of "+name+" -->"
	head, rest, found := strings.Cut(string(raw), begin)
	require.True(t, found, "%s lacks %q", page, begin)
	got, tail, found := strings.Cut(rest, end)
	require.True(t, found, "%s lacks %q", page, end)
	if got == want {
		return
	}
	if os.Getenv(updateEnv) != "1" {
		wanted, has := strings.Split(want, "\n"), strings.Split(got, "\n")
		for i := range min(len(wanted), len(has)) {
			require.Equal(t, wanted[i], has[i], "%s says something else: make conformance UPDATE=1 writes it again", page)
		}
		require.Len(t, has, len(wanted), "%s says something else: make conformance UPDATE=1 writes it again", page)
	}
	require.NoError(t, os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644))
	t.Logf("wrote %q of %s", name, page)
}
