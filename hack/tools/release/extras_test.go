// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRelink(t *testing.T) {
	place := map[string]string{
		"docs/a.md": "docs/a.md", "docs/b.md": "docs/b.md", "SECURITY.md": "SECURITY.md",
		"build/monitoring": "monitoring", "build/monitoring/alerts.yaml": "monitoring/alerts.yaml",
	}
	for _, tc := range []struct{ name, page, text, want string }{
		{"beside it", "docs/a.md", "see [b](b.md#part), [b](b.md)", "see [b](b.md#part), [b](b.md)"},
		{"one level up", "docs/a.md", "[report](../SECURITY.md)", "[report](../SECURITY.md)"},
		{"from above", "SECURITY.md", "[a](docs/a.md)", "[a](docs/a.md)"},
		{"elsewhere in the release", "docs/a.md", "[`alerts`](../build/monitoring/alerts.yaml), [all](../build/monitoring)", "[`alerts`](../monitoring/alerts.yaml), [all](../monitoring)"},
		{"not in the release", "docs/a.md", "the [command](../hack/tools/slo/doc.go) and [gates](../README.md#feature-gates)", "the command and gates"},
		{"on the page, and an address", "docs/a.md", "[here](#part) [KEP](https://kep.k8s.io/5647)", "[here](#part) [KEP](https://kep.k8s.io/5647)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := relink([]byte(tc.text), tc.page, place)
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(got))
		})
	}
}

// Every relative link of a page in the release leads to a file or a folder of it.
func TestLinksOfTheRelease(t *testing.T) {
	files, err := readExtras("../../..")
	require.NoError(t, err)
	there := map[string]bool{}
	for _, file := range files {
		for within := file.Path; within != "."; within = path.Dir(within) {
			there[within] = true
		}
	}
	checked := 0
	for _, file := range files {
		for _, found := range link.FindAllSubmatch(file.Data, -1) {
			checked++
			assert.True(t, there[path.Join(path.Dir(file.Path), string(found[2]))], "%s links to %s, which the release does not have", file.Path, found[2])
		}
	}
	assert.Positive(t, checked)
}
