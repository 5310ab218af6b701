// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// NodeOf returns the node that a DaemonSet's pod runs on or is meant for: the one that it is bound to, else
// the one in the affinity that the DaemonSet controller gives it.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// DaemonSetOf returns the UID of the DaemonSet that controls an object, or nothing.
func DaemonSetOf(object metav1.Object) types.UID { return controllerOf(object, "DaemonSet") }

// controllerOf returns the UID of the object of that kind that controls an object, or nothing.
func controllerOf(object metav1.Object, kind string) types.UID {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil && ref.Kind == kind {
		return ref.UID
	}
	return ""
}

// live says that a pod is neither gone nor being deleted.
func live(e truth.Event) bool {
	return e.Type != watch.Deleted && pod(e).DeletionTimestamp == nil
}

func pod(e truth.Event) *corev1.Pod { return e.Object.(*corev1.Pod) }

func daemonSet(e truth.Event) *appsv1.DaemonSet { return e.Object.(*appsv1.DaemonSet) }

func revision(e truth.Event) *appsv1.ControllerRevision {
	return e.Object.(*appsv1.ControllerRevision)
}

// surges says that a DaemonSet may have two live pods on a node while it is updated.
func surges(ds *appsv1.DaemonSet) bool {
	u := ds.Spec.UpdateStrategy.RollingUpdate
	return u != nil && u.MaxSurge != nil && u.MaxSurge.String() != "0" && u.MaxSurge.String() != "0%"
}
