// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

// binaryImageCommand is for the tests on a real kubelet: what is not ours to release, such as stock
// kube-controller-manager, becomes an image too.
func binaryImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "binary-image NAME BINARY PATH FILE",
		Short: "Make an image of one static binary, which runs it from PATH, for this machine's architecture",
		Args:  cobra.ExactArgs(4),
		RunE: func(_ *cobra.Command, args []string) error {
			return makeBinaryImage(args[0], args[1], args[2], args[3])
		},
	}
}

func makeBinaryImage(named, binary, at, file string) error {
	ref, err := name.NewTag(named, name.StrictValidation)
	if err != nil {
		return err
	}
	if !path.IsAbs(at) {
		return fmt.Errorf("%q is no path from the root of the image", at)
	}
	// Any time will do, so long as the same binary gives the same image.
	date := time.Unix(0, 0).UTC()
	layer := rootfs.Layer{Name: path.Base(at), Files: []rootfs.File{{Path: at[1:], Mode: 0o755, Source: binary}}}
	img, err := image.New(runtime.GOARCH, v1.Config{Entrypoint: []string{at}, Env: []string{"PATH=/usr/local/bin"}}, []rootfs.Layer{layer}, date)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	return image.WriteImage(file, ref, img, date)
}
