// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// The leader stops while it creates pods, another takes over and finishes, and the old one goes on where it
// stopped until it learns that it lost its lease, and exits. That takes it a whole renew deadline (client-go tries
// for so long before it gives up), and what waited for the client's rate limiter goes out at once. P sends no
// write once its lease has run out; what had left the process before the pause nobody can call back.
var _ = describe(scenario{
	number: 18, title: "leader paused in mid-burst, another takes over, the old one goes on", label: long,
	hurts: rig.U1, rules: []string{oracle.RuleSurplus}, mutants: []without{{"leader-fence", oracle.RuleSurplus}},
	options: rig.Options{KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: burstNodes}}}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		proxy, err := r.StartProxy(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ginkgo.DeferCleanup(proxy.Close)
		old := r.KCM
		successor, err := r.StartKCM(ctx, "kube-controller-manager-standby", proxy, func(o *controlplane.KCMOptions) { o.NoWaitForLeader = true })
		gomega.Expect(err).NotTo(gomega.HaveOccurred())

		set := create(ctx, r, workload.DaemonSet("handover"))
		r.eventually(ctx, "a burst of creations", func() (bool, error) {
			return oracle.DigestOf(r.Truth, set).PodsCreated >= burstAt, nil
		})
		gomega.Expect(old.Pause()).To(gomega.Succeed())
		paused := oracle.DigestOf(r.Truth, set).PodsCreated
		r.figure("pods when paused", "%d", paused)
		if paused >= burstNodes {
			r.unproven = append(r.unproven, "the burst was over before the pause")
		}
		gomega.Expect(successor.WaitForLeader(ctx)).To(gomega.Succeed())
		r.Adopt(successor)
		r.converges(ctx, "by the successor", stepLimit, r.daemonSetDone(set, burstNodes))
		before := oracle.DigestOf(r.Truth, set)
		gomega.Expect(old.Resume()).To(gomega.Succeed())
		exits, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		gomega.Expect(old.Wait(exits)).To(gomega.MatchError(gomega.ContainSubstring("exit status 1")), "it lost its lease")
		gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
		r.figure("late creations by the old leader", "%d", oracle.DigestOf(r.Truth, set).PodsCreated-before.PodsCreated)
		r.figure("L after", "%.1fs", r.converges(ctx, "handover", stepLimit, r.daemonSetDone(set, burstNodes)).Seconds())
		r.digest("handover", set, oracle.Digest{PodsCreated: burstNodes, RevisionsCreated: 1})
	},
})
