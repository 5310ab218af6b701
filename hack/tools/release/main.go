// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes the container image and the release of what is built into _output/bin/linux-<arch>.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// architectures are those that a release has.
var architectures = []string{"amd64", "arm64"}

func main() {
	cmd := &cobra.Command{
		Use:           "release",
		Short:         "Make the container image and the release",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(imageCommand(), filesCommand(), argsCommand(), binaryImageCommand(), folderCommand(), verifyCommand(), licensesCommand())
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// checkArchitectures refuses what no release has.
func checkArchitectures(chosen []string) error {
	for _, arch := range chosen {
		if !slices.Contains(architectures, arch) {
			return fmt.Errorf("ARCH %q is unknown: there are %s", arch, strings.Join(architectures, ", "))
		}
	}
	return nil
}
