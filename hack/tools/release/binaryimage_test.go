// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
)

func TestBinaryImage(t *testing.T) {
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "pause"), filepath.Join(dir, "pause.tar")
	require.NoError(t, os.WriteFile(binary, []byte("pause"), 0o600))
	for _, tc := range []struct{ name, image, binary, at, want string }{
		{"as it should be", "localhost/pause:test", binary, "/bin/pause", ""},
		{"no tag", "localhost/pause", binary, "/bin/pause", "tag"},
		{"no binary", "localhost/pause:test", binary + ".exe", "/bin/pause", "no such file"},
		{"relative path", "localhost/pause:test", binary, "bin/pause", "no path from the root"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := makeBinaryImage(tc.image, tc.binary, tc.at, file)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			archive, err := image.Open(file)
			require.NoError(t, err)
			defer archive.Close()
			require.NoError(t, archive.Validate())
			img, err := archive.Image()
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, []string{"/bin/pause"}, config.Config.Entrypoint)
			sum, err := image.SHA256(img, "bin/pause")
			require.NoError(t, err)
			want := sha256.Sum256([]byte("pause"))
			assert.Equal(t, hex.EncodeToString(want[:]), sum)
		})
	}
}
