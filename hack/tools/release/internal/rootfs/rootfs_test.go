// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLayers(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "kcm")
	require.NoError(t, os.WriteFile(binary, []byte("kcm"), 0o644))
	layers, err := Layers(strings.TrimSpace(string(goroot)), binary, map[string][]byte{"go/LICENSE": []byte("BSD")})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, WriteDir(dir, layers))
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}

	assert.Equal(t, "kcm", read(Binary))
	assert.Equal(t, "BSD", read("licenses/go/LICENSE"))
	info, err := os.Stat(filepath.Join(dir, Binary))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())

	assert.Contains(t, read("etc/passwd"), "nonroot:x:"+User+":"+User+":")
	assert.Contains(t, read("etc/group"), "nonroot:x:"+User+":")

	authorities := 0
	for rest := []byte(read(Certificates)); ; authorities++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			assert.Empty(t, rest)
			break
		}
		_, err := x509.ParseCertificate(block.Bytes)
		assert.NoError(t, err)
	}
	assert.Greater(t, authorities, 50)

	_, err = time.LoadLocationFromTZData("Europe/Berlin", []byte(read("usr/share/zoneinfo/Europe/Berlin")))
	assert.NoError(t, err)
}

func TestLayersWithoutTimeZones(t *testing.T) {
	_, err := Layers(t.TempDir(), "kcm", nil)
	assert.ErrorContains(t, err, "time zones of the Go distribution")
}
