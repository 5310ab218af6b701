// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// PodGCDeletes judges the deletions by pod garbage collection on the true state just before the deletion: the pod must have
// ended, and more pods than the threshold.
func PodGCDeletes(threshold int) Judge {
	return func(t *truth.Recorder, d Deletion) string {
		if d.By != PodGarbageCollector || !Ended(d.Pod) {
			return ""
		}
		ended := 0
		for _, e := range t.At(truth.Pods, d.RV-1) {
			if Ended(pod(e)) {
				ended++
			}
		}
		if ended <= threshold {
			return ""
		}
		return fmt.Sprintf("%d pods have ended", ended)
	}
}

// OrphanDeletes judges the deletions by pod garbage collection of pods whose node is gone, on the true state just before the deletion.
func OrphanDeletes(t *truth.Recorder, d Deletion) string {
	if d.By != PodGarbageCollector || d.Pod.Spec.NodeName == "" {
		return ""
	}
	if _, ok := t.Find(truth.Nodes, "", d.Pod.Spec.NodeName, d.RV-1); ok {
		return ""
	}
	return "its node is gone"
}

// Ended reports whether a pod has.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
