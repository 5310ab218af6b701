// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	surgingNodes = 3
	minReady     = 20 * time.Second
	nextImage    = workload.Image + ":next"

	ruleStandsStill = "rolling update that surges stands still"
)

// A DaemonSet that surges has made its new pods, and they are ready, but not available yet, when another leader begins. Upstream has its queue come back for them when it sees
// a pod become ready, which the new leader does not, and otherwise only if a node's oldest pod, here an old one that is available, is not: nothing comes back, and both
// pods of each node stay until something else happens.
var _ = describe(scenario{
	number: 61, title: "a new leader while the new pods of a DaemonSet that surges are not available yet", label: ordinary,
	hurts: rig.U1, rules: []string{ruleStandsStill}, mutants: []without{{"available", ruleStandsStill}}, gaps: []int{25}, idle: true,
	options: rig.Options{KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: surgingNodes}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "surging"
		ds := create(ctx, r, workload.DaemonSet(name, workload.Surge, func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = int32(minReady.Seconds()) }))
		r.converges(ctx, "before the rolling update", patience, r.daemonSetDone(ds, surgingNodes))
		setImage(ctx, r, name, nextImage)
		var available time.Time
		r.eventually(ctx, "the new pods to be ready", func() (bool, error) {
			var ready int
			ready, available = r.newPodsReady()
			return ready == surgingNodes, nil
		})
		gomega.Expect(r.KCM.Restart(ctx)).To(gomega.Succeed())
		r.Adopt(r.KCM)
		left := time.Until(available)
		r.figure("new leader before the pods are available", "%v", rounded(left))
		if left <= 0 {
			r.unproven = append(r.unproven, "the pods were available before the new leader began")
		}
		r.passes(ctx, "the new pods to be available", available, 0)
		done := r.daemonSetDone(ds, surgingNodes)
		if err := rig.Wait(ctx, stepLimit, "the old pods to go", func() (bool, error) { return done() == nil, nil }); err != nil {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleStandsStill, Object: name, Time: time.Now(), Detail: done().Error()})
			patchSpec(ctx, r, name, `{"spec":{"revisionHistoryLimit":5}}`) // Anything that has it looked at.
		} else {
			r.figure("old pods gone after the new ones were available", "%v", rounded(time.Since(available)))
		}
		r.converges(ctx, "after the rolling update", stepLimit, done)
		gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
		r.digest(name, ds, oracle.Digest{PodsCreated: 2 * surgingNodes, PodsDeleted: surgingNodes, RevisionsCreated: 2})
	},
})

// newPodsReady is how many pods with the new image are ready, and when they all are available.
func (r *run) newPodsReady() (ready int, available time.Time) {
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		pod := e.Object.(*corev1.Pod)
		if pod.Spec.Containers[0].Image != nextImage || !podutil.IsPodReady(pod) {
			continue
		}
		ready++
		if at := podutil.GetPodReadyCondition(pod.Status).LastTransitionTime.Add(minReady); at.After(available) {
			available = at
		}
	}
	return ready, available
}
