// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command staleness-lab runs a real control plane on this machine, to try Fresh KCM on it and to show
// what stale caches do to a kube-controller-manager.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code.
func run(args []string) int {
	ctx, stop := untilStopped(os.Stdout)
	defer stop()

	command := newCommand()
	command.SetArgs(args)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "staleness-lab: %v\n", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "staleness-lab",
		Short:         "A real control plane on this machine, and what stale caches do to it",
		SilenceErrors: true,
		SilenceUsage:  true,
		// Without it, a command that does not exist would print the help and succeed.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newUpCommand(), newDemoCommand(), newBenchCommand(), newHoldCommand(), newKillNodeCommand(), newRefusePodsCommand())
	return root
}

// checkBinaries finds out what is missing before anything is made or started.
func checkBinaries(arms ...controlplane.Arm) error {
	binDir, err := controlplane.FindBinDir()
	if err != nil {
		return err
	}
	// Two arms with one binary would name it twice.
	var distinct []controlplane.Arm
	seen := map[string]bool{}
	for _, arm := range arms {
		if binary := arm.Binary(binDir); !seen[binary] {
			seen[binary] = true
			distinct = append(distinct, arm)
		}
	}
	return controlplane.CheckBinaries(binDir, distinct...)
}
