// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster has the specs that need no fault: they run against any cluster, by --kubeconfig, and
// against a control plane of their own without it. What they ask for holds on stock upstream too; a
// protection that breaks it is worse than none.
package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

// nodes of the cluster that is started if none is given.
const nodes = 10

func TestMain(m *testing.M) {
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	os.Exit(m.Run())
}

func TestCluster(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	if framework.TestContext.KubeConfig == "" {
		framework.TestContext.KubeConfig = start(t)
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	ginkgo.RunSpecs(t, "Fresh KCM on a cluster without faults")
}

// start brings up a control plane of the arm that ARM names, P if unset, and returns its kubeconfig.
func start(t *testing.T) string {
	t.Helper()
	arm := rig.P
	if name := os.Getenv("ARM"); name != "" {
		var err error
		if arm, err = rig.ParseArm(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := binaries(); err != nil {
		if os.Getenv("FRESH_KCM_REQUIRE_BINARIES") == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{
		Nodes: controlplane.NodeOptions{Count: nodes},
		KCMs:  []controlplane.KCMOptions{arm.KCM()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			cluster.Keep()
			fmt.Println("logs are kept in", cluster.Dir())
		}
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cluster.KubeconfigPath()
}

func binaries() error {
	bin, err := controlplane.FindBinDir()
	if err != nil {
		return err
	}
	return controlplane.CheckBinaries(bin, controlplane.Arms()...)
}
