// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// StatefulSetController is the service account's name.
const StatefulSetController = "statefulset-controller"

// StatefulSetDeletes judges the deletions by the StatefulSet controller, and by the garbage collector for it, on the true state just before the deletion,
// and on the specs that the reconcile may rest on: any since as long before its first deletion as promised. It needs statefulsets recorded.
func StatefulSetDeletes(t *truth.Recorder, d Deletion) string {
	owner := statefulSetOf(d.Pod)
	if owner == "" {
		return ""
	}
	now, ok := t.At(truth.StatefulSets, d.RV-1)[owner]
	if !ok || statefulSet(now).DeletionTimestamp != nil {
		return "its StatefulSet is gone"
	}
	if d.By != StatefulSetController {
		return ""
	}
	if Ended(d.Pod) {
		return "it has ended"
	}
	for _, e := range append(d.replaced(t, truth.StatefulSets, now), now) {
		set := statefulSet(e)
		switch ordinal, ok := ordinalOf(d.Pod.Name); {
		case ok && ordinal >= int(wantedOf(set)):
			return "its StatefulSet wants fewer"
		case set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && d.Pod.Labels[appsv1.ControllerRevisionHashLabelKey] != currentStatefulSetRevision(t, set, d.RV-1):
			return "it is of an old revision"
		}
	}
	return ""
}

// currentStatefulSetRevision returns the name of the revision that holds a StatefulSet's template, if there is one. Revisions of both kinds have one form.
func currentStatefulSetRevision(t *truth.Recorder, set *appsv1.StatefulSet, at uint64) string {
	like := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: set.UID}, Spec: appsv1.DaemonSetSpec{Template: set.Spec.Template}}
	if r := current(t, like, "StatefulSet", at); r != nil {
		return r.Name
	}
	return ""
}

// ordinalOf is the number at the end of the name of a StatefulSet's pod. No scenario lets it begin at another than 0.
func ordinalOf(pod string) (int, bool) {
	ordinal, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	return ordinal, err == nil
}

func statefulSet(e truth.Event) *appsv1.StatefulSet { return e.Object.(*appsv1.StatefulSet) }

func wantedOf(set *appsv1.StatefulSet) int32 { return ptr.Deref(set.Spec.Replicas, 1) }

func statefulSetOf(object metav1.Object) types.UID { return controllerOf(object, "StatefulSet") }
