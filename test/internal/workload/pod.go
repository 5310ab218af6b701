// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taint is a NoExecute taint that no controller puts on a node or takes off it.
var Taint = corev1.Taint{Key: "e2e.fresh-kcm.io/maintenance", Effect: corev1.TaintEffectNoExecute}

// Tolerating returns a pod on a node that belongs to nobody, so that it is lost if it is deleted, and that
// tolerates Taint for a time in whole seconds.
func Tolerating(name, node string, toleration time.Duration) *corev1.Pod {
	pod := Orphan(name, name, node)
	pod.Spec.Tolerations = []corev1.Toleration{{
		Key: Taint.Key, Operator: corev1.TolerationOpExists, Effect: Taint.Effect,
		TolerationSeconds: new(int64(toleration.Seconds())),
	}}
	return pod
}

// Unschedulable returns a pod like Orphan's that is meant for a node, as a DaemonSet's pods are, but asks for
// more than any node has.
func Unschedulable(name, app, node string) *corev1.Pod {
	pod := Orphan(name, app, "")
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	return pod
}
