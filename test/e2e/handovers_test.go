// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/leak"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	handoverNodes = 20
	// handoverTerms is how many kube-controller-managers lead one after the other.
	handoverTerms = 4
)

// Each leader is killed in the middle of a rolling update, and one that has waited takes over. In a process that loses its lease nothing
// outlives it: it exits. What is looked for is what a leader keeps because it took over: it may have no more than the first one had, when
// it is at rest after the same work.
var _ = ginkgo.Describe("Handovers", gates.StaleControllerConsistency(), ginkgo.Label("handovers", long), ginkgo.Serial, func() {
	ginkgo.It("leave a survivor with no more than the first leader had", func(ctx context.Context) {
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Binary: os.Getenv(binaryVariable), KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: handoverNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture}
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if ginkgo.CurrentSpecReport().Failed() {
				dir, err := r.Keep()
				ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
			}
			gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
		})
		began := time.Now()
		standby := func(term int) *controlplane.KCM {
			kcm, err := r.StartKCM(ctx, fmt.Sprint("kube-controller-manager-", term), r.Proxy, func(o *controlplane.KCMOptions) { o.NoWaitForLeader = true })
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			return kcm
		}
		set := create(ctx, r, workload.DaemonSet("rolled"))
		r.eventually(ctx, "the DaemonSet to be made", func() (bool, error) { return oracle.DaemonSetDone(r.Truth, set, handoverNodes) == nil, nil })
		roll := func(term int) (before int) {
			before = oracle.DigestOf(r.Truth, set).PodsCreated
			setImage(ctx, r, "rolled", fmt.Sprint("example.com/term:", term))
			return before
		}
		roll(1)
		var samples []leak.Sample
		for term := 1; ; term++ {
			r.eventually(ctx, "the rolling update to end", func() (bool, error) {
				return oracle.DigestOf(r.Truth, set).PodsCreated >= (term+1)*handoverNodes && oracle.DaemonSetDone(r.Truth, set, handoverNodes) == nil, nil
			})
			sample, err := r.sample(ctx)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			samples = append(samples, sample)
			say(fmt.Sprintf("term %d, %s: %.0f goroutines, heap %.1f MiB, %.0f records, %.0f watches, %.0f series", term, time.Since(began).Round(time.Second),
				sample.Goroutines, sample.Heap/(1<<20), sample.Records, sample.Watches, sample.Series))
			if term == handoverTerms {
				break
			}
			successor := standby(term + 1)
			before := roll(term + 1)
			r.eventually(ctx, "a part of the rolling update", func() (bool, error) { return oracle.DigestOf(r.Truth, set).PodsCreated > before, nil })
			gomega.Expect(r.KCM.Kill()).To(gomega.Succeed())
			gomega.Expect(successor.WaitForLeader(ctx)).To(gomega.Succeed())
			r.Adopt(successor)
		}
		leaks, err := leak.Find(samples)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(leaks).To(gomega.BeEmpty())
		gomega.Expect(r.standing(ctx)).To(gomega.Succeed())
		gomega.Expect(oracle.Count(r.violations)).To(gomega.BeEmpty())
	}, ginkgo.SpecTimeout(slowMachine*6*time.Minute))
})
