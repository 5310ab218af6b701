// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// A pod of a StatefulSet goes if it has a number too high, by any scale that the reconcile may rest on, is of an old revision, has ended, or has lost its set.
func TestStatefulSetDeletes(t *testing.T) {
	set := func(replicas int32, image string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "default", UID: "set"}, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}},
		}}
	}
	owned := metav1.NewControllerRef(set(1, ""), appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	revision := func(image string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "set-" + image, Namespace: "default", UID: "revision", OwnerReferences: []metav1.OwnerReference{*owned}},
			Data: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"containers":[{"image":%q,"name":"main","resources":{}}]}}}}`, image)}}
	}
	for name, tt := range map[string]struct {
		before func(h *history)
		pod    string
		as     func(*corev1.Pod)
		by     string
		wrong  int
	}{
		"a number too high":          {pod: "set-2"},
		"a number below":             {pod: "set-1", wrong: 1},
		"of a scale of a moment ago": {before: func(h *history) { h.add(truth.StatefulSets, watch.Modified, set(3, "new")) }, pod: "set-2"},
		"of a scale of long ago": {before: func(h *history) {
			h.add(truth.StatefulSets, watch.Modified, set(3, "new"))
			h.idle(5)
		}, pod: "set-2", wrong: 1},
		"an old revision": {pod: "set-1", as: func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = "set-old" }},
		"a template without a revision yet": {before: func(h *history) {
			h.add(truth.StatefulSets, watch.Modified, set(2, "newer"))
			h.idle(5)
		}, pod: "set-1"},
		"of a revision of another set": {before: func(h *history) {
			others := revision("newer")
			others.UID, others.OwnerReferences[0].UID = "others", "other"
			h.add(truth.ControllerRevisions, watch.Added, others)
			h.add(truth.StatefulSets, watch.Modified, set(2, "newer"))
			h.idle(5)
		}, pod: "set-1", as: func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = "set-newer" }},
		"an old revision, deleted by hand": {before: func(h *history) {
			on := set(2, "newer")
			on.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			h.add(truth.StatefulSets, watch.Modified, on)
			h.idle(5)
		}, pod: "set-1", wrong: 1},
		"one that has ended": {pod: "set-1", as: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"by another":         {pod: "set-2", by: DaemonSetController, wrong: 1},
		"of a set that is gone": {before: func(h *history) { h.add(truth.StatefulSets, watch.Deleted, set(2, "new")) }, pod: "set-1",
			by: "generic-garbage-collector"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.add(truth.StatefulSets, watch.Added, set(2, "new"))
			h.add(truth.ControllerRevisions, watch.Added, revision("new"))
			of := func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*owned}
				p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "set-new"}
				if tt.as != nil {
					tt.as(p)
				}
			}
			h.pod(watch.Added, tt.pod, "n", of)
			h.idle(100)
			if tt.before != nil {
				tt.before(h)
			}
			h.pod(watch.Deleted, tt.pod, "n", of)
			by := tt.by
			if by == "" {
				by = StatefulSetController
			}
			h.asked(account+by, "delete", "pods", tt.pod, moment)
			require.Len(t, Unjustified(truth.Replay(h.events), h.writes, Deaths{}, StatefulSetDeletes), tt.wrong)
		})
	}
}

// The end state says what there is of a StatefulSet.
func TestEndStateOfAStatefulSet(t *testing.T) {
	h := &history{}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "default", UID: "set"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2))},
		Status: appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1}}
	h.add(truth.StatefulSets, watch.Added, set)
	of := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	}
	h.pod(watch.Added, "set-0", "n", of)
	require.Equal(t, []string{
		"1 pods of StatefulSet set, Ready false, deleted false, images []",
		"StatefulSet set: images [], wants 2, has 2, 2 updated, 1 ready, 1 available",
	}, EndState(truth.Replay(h.events)))
	require.Empty(t, LeftOver(truth.Replay(h.events)))
	h.add(truth.StatefulSets, watch.Deleted, set)
	require.Equal(t, []string{"set-0"}, LeftOver(truth.Replay(h.events)))
}
