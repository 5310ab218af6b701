// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image makes OCI images of files alone, without a container engine and without a base image.
package image

import (
	"compress/gzip"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

// RevisionLabel says which commit an image was made of.
const RevisionLabel = "org.opencontainers.image.revision"

// Config is what the image says of how it runs, the same on every architecture. As in upstream's image no user is
// set: kubeadm's static pod sets none either, and must read files that only root may read.
func Config(info stamp.Stamp) v1.Config {
	return v1.Config{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"/" + rootfs.Binary},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.created":     info.Date.Format(time.RFC3339),
			"org.opencontainers.image.description": "kube-controller-manager that takes no disruptive action on a stale cache",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			RevisionLabel:                          info.Revision(),
			"org.opencontainers.image.title":       "Fresh KCM",
			"org.opencontainers.image.vendor":      "The Fresh KCM Authors",
			"org.opencontainers.image.version":     info.Version,
		},
	}
}

// New makes the image of one architecture. The same layers, config and date give the same digest.
func New(arch string, config v1.Config, layers []rootfs.Layer, date time.Time) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: date}, Config: config,
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	for _, files := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			in, out := io.Pipe()
			go func() { out.CloseWithError(files.WriteTar(out, date)) }()
			return in, nil
		}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: date}, CreatedBy: files.Name},
		})
		if err != nil {
			return nil, err
		}
	}
	return img, nil
}

// Index names the images of all architectures.
func Index(images map[string]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range sorted(images) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index
}
