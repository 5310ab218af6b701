// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	proofNodes = 20
	// proofSlack is for what two runs of the same rollout differ by.
	proofSlack = 1.25
)

// A rolling update, each deletion of which needs a proof of the revisions, with the monitor and without it: the
// requests of the proofs and of the monitor together are no more than those of whichever asks more often.
var _ = ginkgo.Describe("Requests of proofs and of the monitor", ginkgo.Label(long, "proof-cost"), gates.MonitorInformerStaleness(), func() {
	ginkgo.It("are the same ones", func(ctx context.Context) {
		with, without := proofRate(ctx, true), proofRate(ctx, false)
		fmt.Printf("\nConsistent reads of controllerrevisions a second in a rolling update: with the monitor %.2f, without %.2f\n", with, without)
		gomega.Expect(without).To(gomega.BeNumerically(">", 0), "proofs were needed (V)")
		gomega.Expect(with).To(gomega.BeNumerically("<=", proofSlack*max(without, 1/stalenessPeriod.Seconds())))
	}, ginkgo.SpecTimeout(8*time.Minute))
})

// proofRate returns how many reads of the revisions a second a rolling update costs.
func proofRate(ctx context.Context, monitor bool) float64 {
	ginkgo.GinkgoHelper()
	fixture, err := rig.Start(ctx, rig.Options{
		Arm:     rig.P,
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: proofNodes}},
		KCMArgs: []string{fmt.Sprintf("--feature-gates=%s=%t", features.MonitorInformerStaleness, monitor)},
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r := &run{Rig: fixture}
	defer func() { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) }()
	const name = "rolled"
	ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(1)))
	r.converges(ctx, "before the rollout", patience, r.daemonSetDone(ds, proofNodes))
	if monitor {
		r.measured(ctx)
	}
	began := time.Now()
	setImage(ctx, r, name, workload.Image+":next")
	r.eventually(ctx, "the rollout to begin", func() (bool, error) { return r.daemonSetDone(ds, proofNodes)() != nil, nil })
	gomega.Expect(rig.Wait(ctx, 2*time.Minute, "the rollout to end", func() (bool, error) {
		return r.daemonSetDone(ds, proofNodes)() == nil, nil
	})).To(gomega.Succeed())
	took := time.Since(began)
	return float64(r.fencesOf(truth.ControllerRevisions, began)) / took.Seconds()
}

// fencesOf counts the prover's lists of a resource since a time.
func (r *run) fencesOf(resource schema.GroupResource, since time.Time) (n int) {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		e := &events[i]
		if e.Verb == "list" && strings.HasSuffix(e.UserAgent, " freshness") && !e.RequestReceivedTimestamp.Before(since) &&
			e.ObjectRef.Resource == resource.Resource && e.ObjectRef.APIGroup == resource.Group {
			n++
		}
	}
	return n
}
