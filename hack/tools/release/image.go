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
	"time"

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
	return ofArchitectures(&cobra.Command{
		Use:   "image",
		Short: "Make the image of each architecture, and of several an index, in _output/image",
	}, makeImages)
}

// filesCommand is for build/Dockerfile, which lets a container engine make the image.
func filesCommand() *cobra.Command {
	return ofArchitectures(&cobra.Command{
		Use:   "files",
		Short: "Lay the files of the image of each architecture into _output/image/linux-<arch>",
	}, layFiles)
}

// ofArchitectures completes a command that is run on a checkout, for the architectures chosen.
func ofArchitectures(cmd *cobra.Command, run func(cmd *cobra.Command, root string, chosen []string) error) *cobra.Command {
	var root string
	var chosen []string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkArchitectures(chosen); err != nil {
			return err
		}
		return run(cmd, root, chosen)
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	cmd.Flags().StringSliceVar(&chosen, "arch", architectures, "architectures")
	return cmd
}

func argsCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "args",
		Short: "Print what build/Dockerfile is to be built with",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, err := stamp.Read(root)
			if err != nil {
				return err
			}
			version, err := goEnv("GOVERSION")
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "--tag=%s", info.Image)
			for _, arg := range buildArgs(info, strings.TrimPrefix(version, "go")) {
				fmt.Fprintf(cmd.OutOrStdout(), " --build-arg=%s", arg)
			}
			fmt.Fprintln(cmd.OutOrStdout())
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	return cmd
}

// buildArgs are the arguments of build/Dockerfile.
func buildArgs(info stamp.Stamp, goVersion string) []string {
	return []string{
		"GO_VERSION=" + goVersion, "VERSION=" + info.Version, "REVISION=" + info.Revision(), "CREATED=" + info.Date.Format(time.RFC3339),
	}
}

func layFiles(_ *cobra.Command, root string, chosen []string) error {
	for _, arch := range chosen {
		layers, err := readLayers(root, arch)
		if err != nil {
			return err
		}
		dir := filepath.Join(root, "_output", "image", "linux-"+arch)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := rootfs.WriteDir(dir, layers); err != nil {
			return err
		}
	}
	return nil
}

func makeImages(cmd *cobra.Command, root string, chosen []string) error {
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
	goroot, err := goEnv("GOROOT")
	if err != nil {
		return nil, err
	}
	texts, err := licenses.Collect(root, mainPackage, arch, goroot)
	if err != nil {
		return nil, err
	}
	return rootfs.Layers(goroot, binary, texts.Files())
}

// goEnv asks the Go distribution about itself. A binary built with -trimpath does not know it.
func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
