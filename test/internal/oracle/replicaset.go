// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// ReplicaSetController is the service account's name.
const ReplicaSetController = "replicaset-controller"

// ReplicaSetDeletes judges the deletions by the ReplicaSet controller, on the true state just before the
// deletion, and on the scales that the reconcile may rest on: any since as long before its first deletion as promised. Of what
// others have taken away since then it need not know either. It needs replicasets recorded.
func ReplicaSetDeletes(t *truth.Recorder, d Deletion) string {
	owner := replicaSetOf(d.Pod)
	if owner == "" || d.By != ReplicaSetController {
		return ""
	}
	now, ok := t.At(truth.ReplicaSets, d.RV-1)[owner]
	if !ok {
		return "its ReplicaSet is gone"
	}
	want := replicas(now)
	since := d.since()
	for _, e := range d.replaced(t, truth.ReplicaSets, now) {
		want = min(want, replicas(e))
	}
	counts := func(p truth.Event) bool {
		return replicaSetOf(pod(p)) == owner && live(p) && pod(p).Status.Phase != corev1.PodFailed
	}
	var alive int32
	for _, p := range t.At(truth.Pods, d.RV-1) {
		if counts(p) {
			alive++
		}
	}
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.Pods) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || e.RV >= d.RV || !e.Time.After(since) || !counts(before) || counts(e) {
			continue
		}
		if w := d.arrivals.deletion(truth.Pods, before, e); w == nil || By(w) != ReplicaSetController {
			alive++
		}
	}
	if alive > want {
		return "there are more than its ReplicaSet asks for"
	}
	return ""
}

// RuleReplicaSetDeleted is broken by the deletion of a ReplicaSet that has pods, which go with it, or is to have some.
const RuleReplicaSetDeleted = "unjustified delete of a ReplicaSet"

const deploymentController = "deployment-controller"

// replicaSetsWronged judges the deletions of ReplicaSets by the Deployment controller, on the true state just before. Nobody but that
// controller scales them. It needs replicasets recorded, and judges nothing without.
func replicaSetsWronged(t *truth.Recorder, a *arrivals) []Violation {
	var out []Violation
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.ReplicaSets) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || deletes(before) || e.Type != watch.Deleted && !deletes(e) {
			continue
		}
		if w := a.deletion(truth.ReplicaSets, before, e); w == nil || By(w) != deploymentController {
			continue
		}
		alive := 0
		for _, p := range t.At(truth.Pods, e.RV-1) {
			if replicaSetOf(pod(p)) == e.UID && live(p) && !Ended(pod(p)) {
				alive++
			}
		}
		if wanted := replicas(before); wanted > 0 || alive > 0 {
			out = append(out, Violation{Oracle: "S2", Rule: RuleReplicaSetDeleted, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time,
				Detail: fmt.Sprintf("it is to have %d pods, and has %d", wanted, alive)})
		}
	}
	return out
}

func replicas(e truth.Event) int32 { return ptr.Deref(e.Object.(*appsv1.ReplicaSet).Spec.Replicas, 1) }

func replicaSetOf(object metav1.Object) types.UID { return controllerOf(object, "ReplicaSet") }
