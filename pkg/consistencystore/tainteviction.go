// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/evictionguard"
)

// EvictionWaitsReason is the reason of the Warning event on a pod whose eviction has been due for more
// than a minute and is put off until the controller can verify it.
const EvictionWaitsReason = "EvictionWaits"

// GuardEvictions implements what consistency.GuardEvictions asks for. Without proofs there is no guard.
func (s *Store) GuardEvictions(ctx context.Context, evictor consistency.Evictor) consistency.EvictionGuard {
	if s.prover == nil || s.budget == nil {
		return nil
	}
	guard := evictionguard.NewTaintGuard(ctx, s.evictionOptions(), evictionguard.EvictorOf(evictor))
	if nodes, ok := s.caches[nodeResource].(cache.Store); ok {
		guard.FollowRelists(nodes)
	}
	return guarded(s, guard)
}

func (s *Store) evictionOptions() evictionguard.Options {
	return evictionguard.Options{Controller: s.name, Prove: s.prover.Prove, Budget: s.budget, Report: s.reports.evictionWaits}
}

// evictionWaits records on a pod that its eviction is put off, and why.
func (r *Reporter) evictionWaits(pod types.NamespacedName, uid types.UID, message string) {
	if r == nil || r.events == nil {
		return
	}
	object := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: uid}
	r.events.Event(object, corev1.EventTypeWarning, EvictionWaitsReason, message)
}

// GuardDeviceEvictions implements what consistency.GuardDeviceEvictions asks for. Without proofs there is
// no guard.
func (s *Store) GuardDeviceEvictions(ctx context.Context, evictor consistency.DeviceEvictor) consistency.DeviceEvictionGuard {
	if s.prover == nil || s.budget == nil {
		return nil
	}
	return guarded(s, evictionguard.NewDeviceTaintGuard(ctx, s.evictionOptions(), evictor))
}
