// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/folder"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/signature"
)

// What signs a release without a key of its own: a key that is made once a checkout, and proves nothing.
const (
	testKeyFile = "_output/release-test-key/key"
	testSigner  = "test@fresh-kcm.invalid"
	realSigner  = "release@fresh-kcm.invalid"
)

func folderCommand() *cobra.Command {
	var key string
	var dirty bool
	cmd := ofArchitectures(&cobra.Command{
		Use:   "folder",
		Short: "Make the release in _output/release/<version> of what is built, and verify it",
	}, func(cmd *cobra.Command, root string, chosen []string) error {
		return makeFolder(cmd, root, key, chosen, dirty)
	})
	cmd.Flags().StringVar(&key, "key", "", "OpenSSH private key that signs; without one, a key for tests")
	cmd.Flags().BoolVar(&dirty, "dirty", false, "allow a checkout that differs from its commit")
	return cmd
}

func verifyCommand() *cobra.Command {
	var signers string
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Verify a release",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return errors.New("which folder? make verify-release DIR=folder")
			}
			if signers == "" {
				signers = filepath.Join(args[0], folder.SignersFile)
				fmt.Fprintf(cmd.OutOrStdout(), "the allowed signers are the release's own: compare the key with one that you got elsewhere, or give SIGNERS=file\n")
			}
			return verify(cmd, args[0], signers)
		},
	}
	cmd.Flags().StringVar(&signers, "allowed-signers", "", "file of those who may sign, got apart from the release")
	return cmd
}

func verify(cmd *cobra.Command, dir, signers string) error {
	allowed, err := os.ReadFile(signers)
	if err != nil {
		return err
	}
	return folder.Verify(dir, allowed, func(format string, args ...any) {
		fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	})
}

func makeFolder(cmd *cobra.Command, root, keyFile string, chosen []string, dirty bool) error {
	info, err := stamp.Read(root)
	if err != nil {
		return err
	}
	if info.TreeState != "clean" && !dirty {
		return errors.New("the checkout differs from its commit: commit first, or try with DIRTY=1")
	}
	release := folder.Release{
		Stamp: info, Builds: map[string]folder.Build{}, Images: filepath.Join(root, "_output", "image"), Roots: rootsVersion(), Signer: realSigner,
	}
	if release.Key, release.Signer, err = readKey(root, keyFile); err != nil {
		return err
	}
	goroot, err := goEnv("GOROOT")
	if err != nil {
		return err
	}
	for _, arch := range chosen {
		build := folder.Build{Binary: binaryFile(root, arch)}
		if build.Licences, err = licenses.Collect(root, mainPackage, arch, goroot); err != nil {
			return err
		}
		release.Builds[arch] = build
	}
	if release.Extras, err = readExtras(root); err != nil {
		return err
	}
	if release.Notes, err = notes(root, info); err != nil {
		return err
	}
	dir := filepath.Join(root, "_output", "release", info.Version)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := folder.Write(dir, release); err != nil {
		return err
	}
	if keyFile == "" {
		fmt.Fprintln(cmd.OutOrStdout(), "signed with a key for tests: docs/release.md says what a real release needs")
	}
	if err := verify(cmd, dir, filepath.Join(dir, folder.SignersFile)); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "release is in", dir)
	return nil
}

// readKey reads the key that signs, and says whose it is.
func readKey(root, file string) ([]byte, string, error) {
	if file == "" {
		key, err := signature.TestKey(filepath.Join(root, filepath.FromSlash(testKeyFile)))
		return key, testSigner, err
	}
	key, err := os.ReadFile(file)
	return key, realSigner, err
}

// rootsVersion is the version of the module that the certificate authorities come from.
func rootsVersion() string {
	const module = "golang.org/x/crypto/x509roots/fallback"
	if info, found := debug.ReadBuildInfo(); found {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return ""
}
