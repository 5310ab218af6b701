// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload makes the objects that the scenarios work on.
package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Image is what the containers of a workload say they run; kwok runs nothing. To change a template, change
// the image.
const Image = "example.com/none"

// DaemonSetOption changes a DaemonSet before it is created.
type DaemonSetOption func(*appsv1.DaemonSet)

// OnDelete leaves existing pods alone when the template changes.
func OnDelete(ds *appsv1.DaemonSet) {
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}

// MaxUnavailable sets how many nodes a rolling update may leave without an available pod.
func MaxUnavailable(n int) DaemonSetOption {
	return func(ds *appsv1.DaemonSet) {
		limit := intstr.FromInt(n)
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type:          appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &limit},
		}
	}
}

// Surge has a rolling update make all new pods before it deletes an old one.
func Surge(ds *appsv1.DaemonSet) {
	all, none := intstr.FromString("100%"), intstr.FromInt32(0)
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &all, MaxUnavailable: &none},
	}
}

// OnNode restricts the pods to one node.
func OnNode(name string) DaemonSetOption {
	return func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: name}
	}
}

// DaemonSet returns a DaemonSet in the namespace default whose pods carry the label app=name.
func DaemonSet(name string, options ...DaemonSetOption) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: Image}}},
			},
		},
	}
	for _, option := range options {
		option(ds)
	}
	return ds
}

// Orphan returns a pod on a node that belongs to nobody, with the label app=app, so that a DaemonSet of that
// name adopts it.
func Orphan(name, app, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: Image}}},
	}
}
