// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// Prover proves caches fresh.
type Prover interface {
	// Prove says whether the cache of a resource is as new as the server was at asOf.
	Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// Known is the newest proof that holds, if there is one. It costs no request.
	Known(resource schema.GroupResource) (freshness.Proof, bool)
	// Wait returns when, after proof, it may be worth proving again.
	Wait(ctx context.Context, resource schema.GroupResource, proof freshness.Proof)
	// Wrote notes a write, its version, and when it was sent: for the cache, that is a fence.
	Wrote(resource schema.GroupResource, rv string, sent rvtracker.Sent)
}

// Caches registers caches with the prover.
type Caches interface {
	// Register registers a cache with the prover. After an error, which is logged, nothing can be proven.
	Register(ctx context.Context, resource schema.GroupResource, store cache.Store) error
	// Registered reports whether the prover has a cache of the resource.
	Registered(resource schema.GroupResource) bool
}

// Term is what the stores of one term of leadership share.
type Term struct {
	Tracker *rvtracker.Tracker
	Prover  Prover
	Caches  Caches
	Live    *Live
	Budget  *livereads.Budget // of the guards of disruptive actions
	Reports *Reporter
	// Since is when the term began: no proof may be older.
	Since time.Time
	// Leadership is how the lock of the term is held; nil without leader election.
	Leadership transport.Leadership

	slowProofs slowProofs
}

// ControllerStore is the store of one controller: a [Store], or a [NodeStore].
type ControllerStore interface {
	consistency.ConsistencyStore
	// Reads reports whether the store was made with a cache of the resource.
	Reads(resource schema.GroupResource) bool
	// Waits hands over everything that the controller does not do now because a cache may be stale.
	Waits(out *stalenessz.Longest)
}

// New returns a controller's store, which lives until ctx, the term of leadership, ends. The controller's first reconciles wait
// until stores, the caches that it reads, are proven as new as the start of the term.
func (t *Term) New(ctx context.Context, controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) ControllerStore {
	s := newStore(t.Tracker, controller, stores)
	s.ctx, s.since = ctx, t.Since
	var resources []schema.GroupResource
	for resource, informer := range stores {
		resources = append(resources, resource)
		store, ok := informer.(cache.Store)
		if !ok {
			continue
		}
		if err := t.Caches.Register(ctx, resource, store); err != nil {
			klog.FromContext(ctx).Error(err, "A cache cannot be proven fresh", "controller", controller, "resource", resource)
		}
	}
	s.register = func(resource schema.GroupResource, store cache.Store) error {
		if t.Caches.Registered(resource) {
			return nil
		}
		return t.Caches.Register(ctx, resource, store)
	}
	slices.SortFunc(resources, byName)
	metrics.Tracker{}.Init(controller, seriesValues, resources...)
	s.slowProofs = &t.slowProofs
	s.prover, s.live, s.budget, s.reports = &answers{Prover: t.Prover, slow: s.slowProofs}, t.Live, t.Budget, t.Reports
	if t.Leadership != nil {
		s.unsettled.renewed = t.Leadership.Renewed
	}
	if len(resources) > 0 {
		go s.start(ctx, t.Prover, s.held.holdStartOf(t.Since, resources[0]), resources)
	}
	switch controller {
	case daemonSetStore, statefulSetStore:
		s.statuses = map[types.NamespacedName]*comeback{}
	case cronJob:
		s.brief = true
		livereads.InitReads(controller, batchv1.Resource("cronjobs"))
	case nodeLifecycle:
		n := newNodeStore(s, t.Prover.Prove)
		n.report = t.Reports.reportNodes
		if leases, ok := stores[leaseResource].(cache.Store); ok {
			n.reached = t.Tracker.Register(leaseResource, leases).Reached
		}
		return n
	}
	return s
}

// seriesValues are the values of metrics' labels from the tracker, the prover and the stores.
var seriesValues = metrics.Values{
	Parked:  append(slices.Clip(rvtracker.LabelValues.Reasons), stalenessz.ForStart, stalenessz.ForUnsettled),
	Dropped: rvtracker.LabelValues.Dropped,
	Proofs:  []string{string(freshness.Proven), string(freshness.Stale), string(freshness.Unknown)},
	Origins: rvtracker.LabelValues.Origins,
}

// newStore returns a controller's store that the tracker keeps and that proves nothing.
func newStore(tracker *rvtracker.Tracker, controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) *Store {
	tracked := make(map[schema.GroupResource]rvtracker.Store, len(stores))
	for resource, s := range stores {
		// Upstream hands over the informers' stores, as the narrowest interface that it needs.
		if t, ok := s.(rvtracker.Store); ok {
			tracked[resource] = t
		}
	}
	indexByController(stores)
	s := &Store{name: controller, caches: stores, held: newHolds(controller), retrying: map[types.NamespacedName]*hold{}, comebacks: map[types.NamespacedName]*comeback{}}
	s.Controller = tracker.ForController(controller, tracked, s.wake)
	if store := tracked[goesOn[controller]]; store != nil {
		s.goesOn = tracker.Register(goesOn[controller], store)
	}
	return s
}

// Reads implements ControllerStore.
func (s *Store) Reads(resource schema.GroupResource) bool {
	_, reads := s.caches[resource]
	return reads
}
