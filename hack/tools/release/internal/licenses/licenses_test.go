// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package licenses

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkout writes a module that needs one package of another module.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod":              "module example.org/app\n\ngo 1.26\n\nrequire example.org/lib v1.0.0\n\nreplace example.org/lib => ./lib\n",
		"cmd/main.go":         "package main\n\nimport _ \"example.org/lib/used\"\n\nfunc main() {}\n",
		"lib/go.mod":          "module example.org/lib\n\ngo 1.26\n",
		"lib/used/used.go":    "package used\n",
		"lib/other/other.go":  "package other\n",
		"goroot/LICENSE":      "of Go",
		"lib/used/license.go": "package used\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

func TestCollect(t *testing.T) {
	dir := checkout(t, map[string]string{
		"LICENSE":               "of the app",
		"lib/LICENSE.md":        "of the library",
		"lib/used/COPYING":      "of a part",
		"lib/other/LICENSE":     "of what is not linked",
		"lib/used/licenses.txt": "about licences",
	})
	texts, err := Collect(dir, "./cmd", "amd64", filepath.Join(dir, "goroot"))
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{
		"go/LICENSE":                   []byte("of Go"),
		"example.org/app/LICENSE":      []byte("of the app"),
		"example.org/lib/LICENSE.md":   []byte("of the library"),
		"example.org/lib/used/COPYING": []byte("of a part"),
	}, texts.Files())
}

func TestCollectWithoutLicence(t *testing.T) {
	dir := checkout(t, map[string]string{"LICENSE": "of the app"})
	_, err := Collect(dir, "./cmd", "amd64", filepath.Join(dir, "goroot"))
	assert.EqualError(t, err, "no licence text is in example.org/lib")
}
