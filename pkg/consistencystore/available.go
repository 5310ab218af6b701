// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/utils/clock"
)

// wakeWhenAvailable has a DaemonSet come back when the next of its pods becomes available, in place of what an earlier reconcile has found. Upstream asks its queue
// for that, which keeps the earliest of several times: if that was for a pod that has gone since, the DaemonSet goes on up to minReadySeconds later, and one that
// surges not before something else happens (updatePod and updateDaemonSetStatus of upstream's pkg/controller/daemon/daemon_controller.go).
func (s *Store) wakeWhenAvailable(owner metav1.Object, pods *owned) {
	set, ok := owner.(*apps.DaemonSet)
	if !ok {
		return
	}
	name := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	next := pods.nextAvailable(set.Spec.MinReadySeconds)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopWaking(name)
	if next == nil {
		return
	}
	if s.available == nil {
		s.available = map[types.NamespacedName]*time.Timer{}
	}
	s.available[name] = time.AfterFunc(*next, func() {
		// If a write of its last reconcile has failed, its queue has it come back, and more seldom each time.
		if s.ctx.Err() == nil && !s.refusals.refuses(name) {
			s.wake(name)
		}
	})
}

// stopWaking has no pod of the DaemonSet wake it. mu must be held.
func (s *Store) stopWaking(name types.NamespacedName) {
	if timer := s.available[name]; timer != nil {
		timer.Stop()
		delete(s.available, name)
	}
}

// nextAvailable is how long it takes until the next of the pods becomes available, nil if none is to become so.
func (o *owned) nextAvailable(minReadySeconds int32) *time.Duration {
	if minReadySeconds == 0 {
		return nil
	}
	items, err := o.list()
	if err != nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(items))
	for _, item := range items {
		if pod, ok := item.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	now := clock.RealClock{}
	return controller.FindMinNextPodAvailabilityCheck(pods, minReadySeconds, now.Now(), now)
}
