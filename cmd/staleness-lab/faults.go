// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
)

func newHoldCommand() *cobra.Command {
	return newFaultCommand(control.Hold, time.Minute, &cobra.Command{
		Use:   "hold RESOURCE",
		Short: "Hold the watches of a resource back from the running lab's kube-controller-manager",
		Long: `Hold back every watch event of a resource, such as nodes, pods or deployments.apps, from the
kube-controller-manager of the lab that runs, change an object of it, and say what Fresh KCM does about it.
All is released at the end, or by Ctrl-C.`,
		Args: exactlyOne("a resource, such as nodes"),
	})
}

func newKillNodeCommand() *cobra.Command {
	return newFaultCommand(control.KillNode, 90*time.Second, &cobra.Command{
		Use:   "kill-node NAME",
		Short: "Stop the heartbeats of one of the running lab's nodes",
		Long: `Stop the heartbeats of a node of the lab that runs, as if the machine had died, and say what Fresh KCM
does about it. The node is brought back at the end, or by Ctrl-C.`,
		Args: exactlyOne("a node, such as node-0000"),
	})
}

func newRefusePodsCommand() *cobra.Command {
	return newFaultCommand(control.RefusePods, 30*time.Second, &cobra.Command{
		Use:   "refuse-pods",
		Short: "Have a quota refuse every new pod in the running lab's namespace default",
		Long: `Create a ResourceQuota that refuses every new pod in the namespace default of the lab that runs, delete
a pod of the sample DaemonSet, and say what Fresh KCM does about it. The quota is deleted at the end, or by Ctrl-C.`,
		Args: cobra.NoArgs,
	})
}

// newFaultCommand makes a command that asks the running lab for a fault.
func newFaultCommand(kind control.Kind, lasts time.Duration, command *cobra.Command) *cobra.Command {
	fault, file := control.Fault{Kind: kind}, ""
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if fault.For <= 0 {
			return fmt.Errorf("--for %v: the duration must be positive", fault.For)
		}
		if len(args) > 0 {
			fault.Name = args[0]
		}
		path, err := stateFile(file)
		if err != nil {
			return err
		}
		return control.Ask(cmd.Context(), path, fault, func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) })
	}
	command.Flags().DurationVar(&fault.For, "for", lasts, "how long it lasts")
	addStateFile(command.Flags(), &file)
	return command
}

func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s, got %d arguments", cmd.Name(), what, len(args))
		}
		return nil
	}
}

func addStateFile(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "state-file", "", "file that tells a second command of the lab (default: _output/staleness-lab.json of the checkout)")
}

func stateFile(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	return control.DefaultStateFile()
}
