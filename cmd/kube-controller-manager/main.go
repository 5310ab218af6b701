// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kube-controller-manager is upstream's, flag for flag, with this project's feature gates and
// with this project's objects handed to the controllers.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJob time zones, also in an image made from scratch

	"github.com/spf13/cobra"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's and the work queues' metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
)

func main() {
	command, err := newCommand()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	os.Exit(cli.Run(command))
}

// newCommand registers the gates, which must come before flags are bound to them, and returns
// upstream's command with this project's wiring.
func newCommand() (*cobra.Command, error) {
	if err := features.Register(utilfeature.DefaultMutableFeatureGate); err != nil {
		return nil, err
	}
	var exempt exemption
	app.AddFlags(exempt.addTo)
	command := app.NewControllerManagerCommand(wire)
	setGates := command.PersistentPreRunE
	command.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := features.Explain(setGates(cmd, args)); err != nil {
			return err
		}
		names, err := exempt.names()
		if err != nil {
			return err
		}
		prepare(names)
		return nil
	}
	return command, nil
}
