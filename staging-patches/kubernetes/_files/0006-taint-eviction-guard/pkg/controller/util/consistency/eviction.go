// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Eviction is the deletion of a pod because of its node's taints.
type Eviction struct {
	Pod  types.NamespacedName
	UID  types.UID
	Node string
	// Start is when the tolerations of the pod began to count.
	Start time.Time
	// State is what the guard keeps from one try to the next.
	State any
}

// RetryEviction is the answer of a guard that puts an eviction off.
type RetryEviction struct {
	At time.Time
	// Eviction is what to try then.
	Eviction Eviction
	// Cancelled is called, perhaps more than once, if the controller calls the eviction off instead.
	Cancelled func()
}

// Error implements error.
func (r *RetryEviction) Error() string {
	return fmt.Sprintf("eviction of %s is put off until %s", r.Eviction.Pod, r.At)
}

// EvictionGuard decides on evictions when they are due.
type EvictionGuard interface {
	// Evict carries the eviction out, cancels it, or returns when to try again. wanted reports whether the controller has neither called it off nor replaced it since.
	Evict(ctx context.Context, eviction Eviction, due time.Time, wanted func() bool) *RetryEviction
}

// Evictor is what a controller hands to its guard.
type Evictor struct {
	Client clientset.Interface
	Nodes  corelisters.NodeLister
	// MinToleration is for how long all the tolerations, each of one taint, last: negative without limit.
	MinToleration func(tolerations []v1.Toleration) time.Duration
	// Evicting and Cancelled say what becomes of the pod.
	Evicting, Cancelled func(pod types.NamespacedName)
	// Recheck looks at the pods of the node, as at an event of the node.
	Recheck func(node string)
}

// EvictionGuardStore is optionally implemented by a provider's store.
type EvictionGuardStore interface {
	// GuardEvictions returns a guard that works until ctx ends, or nil.
	GuardEvictions(ctx context.Context, evictor Evictor) EvictionGuard
}

// GuardEvictions returns the store's guard, or nil if the store has none.
func GuardEvictions(ctx context.Context, store ConsistencyStore, evictor Evictor) EvictionGuard {
	if s, ok := store.(EvictionGuardStore); ok {
		return s.GuardEvictions(ctx, evictor)
	}
	return nil
}
