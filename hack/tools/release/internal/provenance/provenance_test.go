// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package provenance

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

func TestMarshal(t *testing.T) {
	subjects := map[string]string{"a.tar": strings.Repeat("ab", 32), "b.tar": strings.Repeat("cd", 32)}
	release := Release{
		Stamp:    stamp.Stamp{Version: "v1.37.0+fresh.1", Commit: strings.Repeat("0", 40), TreeState: "clean", Date: time.Unix(1_000_000_000, 0)},
		Subjects: subjects,
		Binaries: map[string]*buildinfo.BuildInfo{"amd64": {GoVersion: "go1.26.8", Deps: []*debug.Module{
			// The example in in-toto's page on digests.
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:Khu2En+0gcYPZ2kuIihfswbzxv/mIHXgzPZ018Oty48="},
		}}},
	}
	data, err := Marshal(release)
	require.NoError(t, err)
	for range 20 { // the library's blanks differ from call to call
		again, err := Marshal(release)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "two statements of one release differ")
	}
	got, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, subjects, got)
	for _, want := range []string{
		`"gitCommit": "0000000000000000000000000000000000000000"`, `"pkg:golang/stdlib@1.26.8"`, `"version": "v1.37.0+fresh.1"`,
		`"dirHash": "2a1bb6127fb481c60f67692e22285fb306f3c6ffe62075e0ccf674d7c3adcb8f"`,
	} {
		assert.Contains(t, string(data), want)
	}

	release.Stamp.Commit = "not a commit"
	_, err = Marshal(release)
	assert.Error(t, err)
	for old, new := range map[string]string{
		"slsa.dev/provenance/v1":      "slsa.dev/provenance/v9",
		"in-toto.io/Statement/v1":     "in-toto.io/Statement/v9",
		`"` + subjects["a.tar"] + `"`: `"ab"`,
		`"buildType"`:                 `"kind"`,
	} {
		broken := strings.Replace(string(data), old, new, 1)
		require.NotEqual(t, string(data), broken)
		_, err := Parse([]byte(broken))
		assert.Error(t, err, new)
	}
}
