// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// ReplicaSetController is the service account's name.
const ReplicaSetController = "replicaset-controller"

// ReplicaSetDeletes judges the deletions by the ReplicaSet controller, on the true state just before the
// deletion, and on the scales of the second before, since somebody may scale up while a request is on its way.
// It needs replicasets recorded.
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
	before := now
	for _, e := range t.Events(truth.ReplicaSets) {
		if e.UID != owner || e.RV >= d.RV {
			continue
		}
		// before was in force until e came.
		if before.RV < e.RV && e.Time.After(d.Request.StageTimestamp.Add(-recorderSlack)) {
			want = min(want, replicas(before))
		}
		before = e
	}
	var alive int32
	for _, p := range t.At(truth.Pods, d.RV-1) {
		if replicaSetOf(pod(p)) == owner && live(p) && pod(p).Status.Phase != corev1.PodFailed {
			alive++
		}
	}
	if alive > want {
		return "there are more than its ReplicaSet asks for"
	}
	return ""
}

func replicas(e truth.Event) int32 { return ptr.Deref(e.Object.(*appsv1.ReplicaSet).Spec.Replicas, 1) }

func replicaSetOf(object metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil && ref.Kind == "ReplicaSet" {
		return ref.UID
	}
	return ""
}
