// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command with-cluster runs a command against a control plane that lives as long as it, with kwok's nodes:
//
//	with-cluster -arm on -- e2e.test ...
//
// The command finds the cluster in KUBECONFIG. It ends with the command's exit code; if that is not 0 the
// cluster's logs are kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
	// grace is how long the command has to clean up when this one is told to end.
	grace = 30 * time.Second
)

// arms are the columns of docs/upstream-tests.md.
var arms = map[string]controlplane.KCMOptions{
	"stock": {Arm: controlplane.ArmU1},
	"off": {Arm: controlplane.ArmP, ProcessOptions: controlplane.ProcessOptions{FeatureGates: map[string]bool{
		string(features.MonitorInformerStaleness): false, string(features.StaleControllerConsistency): false,
	}}},
	"on": {Arm: controlplane.ArmP},
}

func main() {
	arm := flag.String("arm", "on", "kube-controller-manager: stock, off (patched, gates off) or on (patched, gates on)")
	nodes := flag.Int("nodes", 5, "how many nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *arm, *nodes, flag.Args())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "with-cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arm string, nodes int, command []string) (err error) {
	kcm, ok := arms[arm]
	if !ok {
		return fmt.Errorf("-arm %s: there are stock, off and on", arm)
	}
	if len(command) == 0 {
		return errors.New("the command to run is missing")
	}
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cluster, err := controlplane.Start(starting, controlplane.Options{
		Nodes: controlplane.NodeOptions{Count: nodes},
		KCMs:  []controlplane.KCMOptions{kcm},
		// A list's continue token expires when its version is compacted, and there is a test that waits for that.
		APIServer: controlplane.ProcessOptions{Args: []string{"--etcd-compaction-interval=30s"}},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			cluster.Keep()
			fmt.Fprintln(os.Stderr, "with-cluster: logs are kept in", cluster.Dir())
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		err = errors.Join(err, cluster.Stop(ctx))
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.KubeconfigPath())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd.Run()
}
