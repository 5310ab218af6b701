// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

// WriteImage writes the image as an archive that containerd reads as an OCI layout, with the digest as it is in the
// index, and that `docker load` reads too.
func WriteImage(file string, ref name.Tag, img v1.Image, date time.Time) error {
	return writeLayout(file, mutate.IndexAddendum{Add: img, Descriptor: named(ref)}, date, func() ([]byte, error) {
		return dockerManifest(ref, img)
	})
}

// WriteIndex writes the index with all its images as an archive with an OCI layout.
func WriteIndex(file string, ref name.Tag, index v1.ImageIndex, date time.Time) error {
	return writeLayout(file, mutate.IndexAddendum{Add: index, Descriptor: named(ref)}, date, nil)
}

// named are the annotations by which containerd and others find what an image in a layout is called.
func named(ref name.Tag) v1.Descriptor {
	return v1.Descriptor{Annotations: map[string]string{
		"io.containerd.image.name":          ref.Name(),
		"org.opencontainers.image.ref.name": ref.TagStr(),
	}}
}

func writeLayout(file string, add mutate.IndexAddendum, date time.Time, docker func() ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	// Beside the archive, because it is as large and /tmp may be memory.
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, add)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if docker != nil {
		manifest, err := docker()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o644); err != nil {
			return err
		}
	}
	if err := writeTar(file, dir, date); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// dockerManifest is the list of images that `docker load` reads; the blobs are those of the layout.
func dockerManifest(ref name.Tag, img v1.Image) ([]byte, error) {
	config, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	manifest := tarball.Descriptor{Config: blob(config), RepoTags: []string{ref.Name()}}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		manifest.Layers = append(manifest.Layers, blob(digest))
	}
	return json.Marshal(tarball.Manifest{manifest})
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// writeTar packs a folder.
func writeTar(file, dir string, date time.Time) error {
	files, err := rootfs.ReadDir(dir)
	if err != nil {
		return err
	}
	for i := range files {
		files[i].Mode = 0o644 // the library gives some of them all rights
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := (rootfs.Layer{Files: files}).WriteTar(out, date); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
