// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
)

// NodeBreaker decides for node lifecycle what may be done on caches of leases and nodes that may be stale.
type NodeBreaker interface {
	// BeginPass reports whether a pass over all nodes may be made.
	BeginPass(ctx context.Context) bool
	// FirstProbe is from when on a node without status is judged.
	FirstProbe(created, now metav1.Time) metav1.Time
	// Lease returns the lease to judge a node by, how long ago it was renewed, and whether that is a heartbeat
	// after saved, the one before. The node has been silent for so long.
	Lease(ctx context.Context, name string, cached, saved *coordv1.Lease, silent time.Duration) (lease *coordv1.Lease, age time.Duration, renewed bool)
	// ConfirmDead reports whether the server had no heartbeat after saved when the grace period ran out,
	// so long ago. If it had, the lease is returned, and how long ago it was renewed; neither if it
	// could not be found out.
	ConfirmDead(ctx context.Context, name string, saved *coordv1.Lease, overdue time.Duration) (dead bool, lease *coordv1.Lease, age time.Duration)
	// ProveNode returns nil if the node's Ready condition is still what was seen of it. Otherwise nothing
	// must be done because of it now; the caller tries again later.
	ProveNode(ctx context.Context, name string, ready v1.ConditionStatus) error
}

// NodeBreakerStore is optionally implemented by a provider's store.
type NodeBreakerStore interface {
	// NodeBreaker returns node lifecycle's breaker, or nil.
	NodeBreaker(client clientset.Interface, gracePeriod time.Duration) NodeBreaker
}

// NewNodeBreaker returns the store's breaker, nil if it has none.
func NewNodeBreaker(store ConsistencyStore, client clientset.Interface, gracePeriod time.Duration) NodeBreaker {
	if s, ok := store.(NodeBreakerStore); ok {
		return s.NodeBreaker(client, gracePeriod)
	}
	return nil
}

// ProveNode is breaker.ProveNode, nil without a breaker.
func ProveNode(ctx context.Context, breaker NodeBreaker, name string, ready v1.ConditionStatus) error {
	if breaker == nil {
		return nil
	}
	return breaker.ProveNode(ctx, name, ready)
}
