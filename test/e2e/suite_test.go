// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs a whole control plane and judges it from outside: real etcd, kube-apiserver,
// scheduler and kube-controller-manager as processes, with kwok in place of nodes.
package e2e

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestE2E(t *testing.T) {
	bin, err := controlplane.FindBinDir()
	if err == nil {
		err = controlplane.CheckBinaries(bin, controlplane.Arms()...)
	}
	if err != nil {
		if os.Getenv("FRESH_KCM_REQUIRE_BINARIES") == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run: %v", err)
	}
	// client-go's own log would drown the report; each component has a log of its own.
	klog.SetLogger(logr.Discard())
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Fresh KCM")
}
