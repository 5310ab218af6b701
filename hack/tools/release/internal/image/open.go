// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

// Archive is an unpacked archive of one image, or of one index.
type Archive struct {
	Digest v1.Hash // of the image or the index
	dir    string
	layout v1.ImageIndex
}

// Open unpacks an archive of WriteImage or WriteIndex. Close removes what was unpacked.
func Open(file string) (*Archive, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	archive := &Archive{dir: dir}
	if err := archive.open(file); err != nil {
		archive.Close()
		return nil, err
	}
	return archive, nil
}

func (a *Archive) open(file string) error {
	if err := unpack(file, a.dir); err != nil {
		return err
	}
	var err error
	if a.layout, err = layout.ImageIndexFromPath(a.dir); err != nil {
		return fmt.Errorf("not an OCI layout: %w", err)
	}
	manifest, err := a.layout.IndexManifest()
	if err != nil {
		return fmt.Errorf("not an OCI layout: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("has %d images, want one", len(manifest.Manifests))
	}
	a.Digest = manifest.Manifests[0].Digest
	return nil
}

// Close removes what was unpacked.
func (a *Archive) Close() error { return os.RemoveAll(a.dir) }

// Validate computes every digest in the archive anew.
func (a *Archive) Validate() error { return validate.Index(a.layout) }

// Image is the image in an archive of one image.
func (a *Archive) Image() (v1.Image, error) { return a.layout.Image(a.Digest) }

// Images are the digests of the images in an archive of an index, by platform.
func (a *Archive) Images() (map[string]v1.Hash, error) {
	index, err := a.layout.ImageIndex(a.Digest)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Hash{}
	for _, entry := range manifest.Manifests {
		images[entry.Platform.String()] = entry.Digest
	}
	return images, nil
}

// SHA256 is the sum of a file in an image.
func SHA256(img v1.Image, path string) (string, error) {
	contents := mutate.Extract(img)
	defer contents.Close()
	for files := tar.NewReader(contents); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the image has no /%s", path)
		}
		if err != nil {
			return "", err
		}
		if header.Name == path {
			sum := sha256.New()
			if _, err := io.Copy(sum, files); err != nil {
				return "", err
			}
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
	}
}

// unpack writes the regular files of an archive below dir, and nowhere else.
func unpack(file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	return rootfs.ReadTar(in, dir)
}
