// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// All events of pods are late, and other pods come and go, so that the cache of pods is never what the server has. What the owners have of it is,
// and Fresh KCM must find that out: stock scales down at once.
var _ = describe(scenario{
	number: 1, title: "pod events delayed by 10 s: a ReplicaSet, a ReplicationController and a Job scaled down while other pods come and go", label: ordinary,
	mutants: []without{{"stale-read", ruleHeldUp}}, idle: true,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, scaledDown)
		r.createScaled(ctx)
		r.told(ctx, truth.Pods)
		stop := churn(ctx, r)
		defer stop()
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: lateEvents})
		r.passes(ctx, "the cache to lag", fault.Stats().Since, lateEvents+2*time.Second)
		began := time.Now()
		r.scaleAll(ctx, scaledTo/2)
		if err := rig.Wait(ctx, scaleLimit, "the owners to be scaled down", func() (bool, error) { return r.scaledPods(ctx, scaledTo/2) == nil, nil }); err != nil {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleHeldUp, Object: scaled, Time: time.Now(), Detail: err.Error()})
		} else {
			r.figure("scaled down after", "%.1fs", time.Since(began).Seconds())
		}
		r.proves(fault, len(scaledKinds)*scaledTo/2, lateEvents)
		fault.Clear()
		r.scaledDone(ctx, scaledTo/2)
	},
})

// scaleLimit is for owners to be scaled down while pod events are late: a third of what a deletion waits at most for its pods to stand still.
const scaleLimit = 10 * time.Second

// scaledDown justifies the deletion of a pod of which its owner has more than half of what it had at first.
func scaledDown(t *truth.Recorder, d oracle.Deletion) string {
	kind, n := d.Pod.Labels["kind"], 0
	for _, e := range t.At(truth.Pods, d.RV-1) {
		if pod, ok := e.Object.(*corev1.Pod); ok && kind != "" && pod.Labels["kind"] == kind && pod.DeletionTimestamp == nil {
			n++
		}
	}
	if n > scaledTo/2 {
		return "there are more than its owner asks for"
	}
	return ""
}
