// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/lab"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"
)

func newUpCommand() *cobra.Command {
	var options lab.Options
	command := &cobra.Command{
		Use:   "up",
		Short: "Bring up a local cluster with Fresh KCM and show it until Ctrl-C",
		Long: `Bring up etcd, kube-apiserver, kube-scheduler, Fresh KCM and nodes run by kwok, with a sample
DaemonSet, and show them until Ctrl-C or SIGTERM, which leaves nothing behind.

kube-controller-manager, kube-scheduler and kwok are started again when they die. The lab ends with
exit code 1 when etcd or kube-apiserver dies, or when another one does not start again.

kube-controller-manager reaches the apiserver through a proxy, which passes everything on until a second command
asks for a fault: see "staleness-lab hold", "kill-node" and "refuse-pods".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Nodes < 1 {
				return fmt.Errorf("--nodes %d: at least one node is required", options.Nodes)
			}
			if err := checkBinaries(controlplane.ArmP); err != nil {
				return err
			}
			if options.BinDir, err = controlplane.FindBinDir(); err != nil {
				return err
			}
			if options.StateFile, err = stateFile(options.StateFile); err != nil {
				return err
			}
			if err := gates.Check(cmd.Context(), controlplane.ArmP, options.FeatureGates); err != nil {
				return err
			}
			return lab.Run(cmd.Context(), options, display.New(os.Stdout))
		},
	}
	flags := command.Flags()
	flags.IntVar(&options.Nodes, "nodes", 100, "how many nodes")
	flags.StringVar(&options.Dir, "dir", "", "keep data and logs in this directory (default: a temporary one, removed at the end)")
	addStateFile(flags, &options.StateFile)
	flags.Var(cliflag.NewMapStringBool(&options.FeatureGates), "feature-gates", "feature gates of kube-controller-manager, as Name=true|false,...")
	return command
}
