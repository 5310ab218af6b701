// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

var (
	date = time.Unix(1_000_000_000, 0).UTC()
	ref  = name.MustParseReference("fresh-kcm.invalid/kube-controller-manager:v1.37.0_fresh.1").(name.Tag)
)

// made makes an image as `make image` does, with a few bytes in place of the binary.
func made(t *testing.T, arch, binary string) v1.Image {
	t.Helper()
	config := Config(stamp.Stamp{Version: "v1.37.0+fresh.1", Commit: "c0ffee", TreeState: "clean", Date: date})
	img, err := New(arch, config, []rootfs.Layer{
		{Name: "base", Files: []rootfs.File{{Path: "etc/passwd", Mode: 0o644, Data: []byte("root")}}},
		{Name: "binary", Files: []rootfs.File{{Path: rootfs.Binary, Mode: 0o755, Data: []byte(binary)}}},
	}, date)
	require.NoError(t, err)
	return img
}

func digest(t *testing.T, img interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	got, err := img.Digest()
	require.NoError(t, err)
	return got
}

func TestImage(t *testing.T) {
	img := made(t, "arm64", "kcm")

	got, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "linux/arm64", got.OS+"/"+got.Architecture)
	assert.Equal(t, []string{"/usr/local/bin/kube-controller-manager"}, got.Config.Entrypoint)
	assert.Contains(t, got.Config.Env[0], ":/usr/local/bin:", "a static pod names the binary without its folder")
	assert.Empty(t, got.Config.User, "kubeadm's static pod reads files of root")
	assert.Equal(t, "v1.37.0+fresh.1", got.Config.Labels["org.opencontainers.image.version"])
	assert.Equal(t, "c0ffee", got.Config.Labels["org.opencontainers.image.revision"])
	assert.Equal(t, "2001-09-09T01:46:40Z", got.Config.Labels["org.opencontainers.image.created"])

	files := tar.NewReader(mutate.Extract(img))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		assert.Equal(t, date, header.ModTime.UTC(), header.Name)
		assert.Zero(t, header.Uid+header.Gid, header.Name)
	}
}

func TestSameInputSameDigest(t *testing.T) {
	assert.Equal(t, digest(t, made(t, "amd64", "kcm")), digest(t, made(t, "amd64", "kcm")))
	assert.NotEqual(t, digest(t, made(t, "amd64", "kcm")), digest(t, made(t, "amd64", "kcm2")))
	assert.NotEqual(t, digest(t, made(t, "amd64", "kcm")), digest(t, made(t, "arm64", "kcm")))
}

func TestArchive(t *testing.T) {
	img := made(t, "amd64", "kcm")
	var files [2][]byte
	for i := range files {
		file := filepath.Join(t.TempDir(), "image.tar")
		require.NoError(t, WriteImage(file, ref, img, date))
		var err error
		files[i], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	assert.True(t, bytes.Equal(files[0], files[1]), "two archives of one image differ")

	t.Run("docker load", func(t *testing.T) {
		loaded, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files[0])), nil }, &ref)
		require.NoError(t, err)
		require.NoError(t, validate.Image(loaded))
		want, err := img.ConfigName()
		require.NoError(t, err)
		got, err := loaded.ConfigName()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
	t.Run("OCI layout", func(t *testing.T) {
		archive := open(t, files[0])
		assert.Equal(t, digest(t, img), archive.Digest)
		assert.NoError(t, archive.Validate())
		manifest, err := archive.layout.IndexManifest()
		require.NoError(t, err)
		assert.Equal(t, ref.Name(), manifest.Manifests[0].Annotations["io.containerd.image.name"])

		loaded, err := archive.Image()
		require.NoError(t, err)
		sum, err := SHA256(loaded, rootfs.Binary)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte("kcm"))), sum)
		_, err = SHA256(loaded, "etc/shadow")
		assert.ErrorContains(t, err, "the image has no /etc/shadow")
	})
	t.Run("tampered", func(t *testing.T) {
		tampered := bytes.Clone(files[0])
		layers, err := img.Layers()
		require.NoError(t, err)
		blob, err := layers[1].Compressed()
		require.NoError(t, err)
		want, err := io.ReadAll(blob)
		require.NoError(t, err)
		at := bytes.Index(tampered, want)
		require.Positive(t, at)
		tampered[at+len(want)-1] ^= 1
		assert.Error(t, open(t, tampered).Validate())
	})
}

func TestIndex(t *testing.T) {
	index := Index(map[string]v1.Image{"arm64": made(t, "arm64", "kcm"), "amd64": made(t, "amd64", "kcm")})
	file := filepath.Join(t.TempDir(), "index.tar")
	require.NoError(t, WriteIndex(file, ref, index, date))
	data, err := os.ReadFile(file)
	require.NoError(t, err)

	archive := open(t, data)
	assert.Equal(t, digest(t, index), archive.Digest)
	assert.NoError(t, archive.Validate())
	images, err := archive.Images()
	require.NoError(t, err)
	assert.Equal(t, map[string]v1.Hash{
		"linux/amd64": digest(t, made(t, "amd64", "kcm")),
		"linux/arm64": digest(t, made(t, "arm64", "kcm")),
	}, images)
}

// open reads an archive as those do that know OCI layouts.
func open(t *testing.T, data []byte) *Archive {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	archive, err := Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, archive.Close()) })
	return archive
}
