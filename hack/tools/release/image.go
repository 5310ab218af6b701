// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/folder"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

const mainPackage = "./cmd/kube-controller-manager"

func imageCommand() *cobra.Command {
	var root string
	var chosen []string
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make the image of each architecture, and of several an index, in _output/image",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return makeImages(cmd, root, chosen)
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	cmd.Flags().StringSliceVar(&chosen, "arch", architectures, "architectures")
	return cmd
}

func makeImages(cmd *cobra.Command, root string, chosen []string) error {
	if err := checkArchitectures(chosen); err != nil {
		return err
	}
	info, err := stamp.Read(root)
	if err != nil {
		return err
	}
	ref, err := name.NewTag(info.Image, name.StrictValidation)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "_output", "image")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	images := map[string]v1.Image{}
	for _, arch := range chosen {
		layers, err := readLayers(root, arch)
		if err != nil {
			return err
		}
		img, err := image.New(arch, image.Config(info), layers, info.Date)
		if err != nil {
			return err
		}
		images[arch] = img
		file := filepath.Join(dir, folder.ImageFile(arch))
		if err := image.WriteImage(file, ref, img, info.Date); err != nil {
			return err
		}
		digest, err := img.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "image linux/%s %s@%s\n", arch, ref, digest)
	}
	if len(chosen) == 1 {
		return nil
	}
	index := image.Index(images)
	if err := image.WriteIndex(filepath.Join(dir, folder.IndexFile), ref, index, info.Date); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "index             %s@%s\n", ref, digest)
	return nil
}

func binaryFile(root, arch string) string {
	return filepath.Join(root, "_output", "bin", "linux-"+arch, "kube-controller-manager")
}

// readLayers collects what the image of an architecture is made of.
func readLayers(root, arch string) ([]rootfs.Layer, error) {
	binary := binaryFile(root, arch)
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: make image builds it", binary)
	}
	goroot, err := goRoot()
	if err != nil {
		return nil, err
	}
	texts, err := licenses.Collect(root, mainPackage, arch, goroot)
	if err != nil {
		return nil, err
	}
	return rootfs.Layers(goroot, binary, texts.Files())
}

// goRoot is where the Go distribution is. A binary built with -trimpath does not know it.
func goRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
