// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

const (
	monitoredNodes = 1000
	// warmUp is what a KCM is given after it has measured all caches; turn is how long its CPU time is counted.
	warmUp = 15 * time.Second
	turn   = time.Minute
	// monitorCost is how much of a core the monitor may take, and how much more CPU time the KCM. Both are
	// judged by the least of the turns of an arm: what else the machine does only adds.
	monitorCost = 0.02
)

// B8's price: the CPU time of the KCM with the monitor and without it, in turns, each a new process on the same
// cluster, whose nodes renew their leases and do nothing else.
var _ = ginkgo.Describe("Benchmark B8: CPU time of the monitor at 1,000 nodes", ginkgo.Serial, ginkgo.Label(benchmark, "bench:8"), gates.MonitorInformerStaleness(), func() {
	ginkgo.It("takes less than 2 % of a core", func(ctx context.Context) {
		rounds := 3
		if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
			rounds = n
		}
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: monitoredNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture}
		ginkgo.DeferCleanup(func(ctx context.Context) { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) })
		gomega.Expect(r.KCM.Stop()).To(gomega.Succeed())
		cores := map[bool][]float64{}
		for round := range rounds {
			for _, on := range []bool{round%2 == 0, round%2 != 0} {
				cores[on] = append(cores[on], r.cpuOf(ctx, fmt.Sprintf("turn-%d-%t", round, on), on))
			}
		}
		with, without := slices.Min(cores[true]), slices.Min(cores[false])
		fmt.Printf("\nB8, %d nodes, share of a core: with the monitor %.4f, without %.4f; least: %.4f and %.4f, more by %.4f of a core, %.1f %% of what it takes without\n",
			monitoredNodes, cores[true], cores[false], with, without, with-without, 100*(with/without-1))
		gomega.Expect(with-without).To(gomega.BeNumerically("<", monitorCost), "of a core")
	}, ginkgo.SpecTimeout(time.Hour))
})

// cpuOf starts a KCM and returns what share of a core it takes.
func (r *run) cpuOf(ctx context.Context, name string, monitor bool) float64 {
	ginkgo.GinkgoHelper()
	kcm, err := r.Cluster.StartKCM(ctx, controlplane.KCMOptions{Arm: controlplane.ArmP, Name: name, ProcessOptions: controlplane.ProcessOptions{
		FeatureGates: map[string]bool{string(features.MonitorInformerStaleness): monitor},
	}})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(kcm)
	defer func() { gomega.Expect(kcm.Stop()).To(gomega.Succeed()) }()
	r.nodesCounted(ctx, monitoredNodes)
	if monitor {
		r.measured(ctx)
	}
	time.Sleep(warmUp)
	before, began := cpuSeconds(ctx, r), time.Now()
	time.Sleep(turn)
	spent := cpuSeconds(ctx, r) - before
	gomega.Expect(r.SameKCM(ctx)).To(gomega.Succeed())
	return spent / time.Since(began).Seconds()
}

// nodesCounted waits until node lifecycle has been through so many nodes.
func (r *run) nodesCounted(ctx context.Context, count int) {
	ginkgo.GinkgoHelper()
	gomega.Expect(rig.Wait(ctx, 2*time.Minute, "node lifecycle to count all nodes", func() (bool, error) {
		return int(series(ctx, r, "node_collector_zone_size")) == count, nil
	})).To(gomega.Succeed())
}

func cpuSeconds(ctx context.Context, r *run) float64 {
	ginkgo.GinkgoHelper()
	seconds := series(ctx, r, "process_cpu_seconds_total")
	gomega.Expect(seconds).To(gomega.BeNumerically(">", 0), "process_cpu_seconds_total")
	return seconds
}
