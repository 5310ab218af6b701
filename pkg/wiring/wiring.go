// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/circuitbreaker"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Wiring is this project's side of one term of leadership: one tracker, one prover, one budget of live
// reads, and a store for every controller that asks for one.
type Wiring struct {
	ctx     context.Context
	tracker *rvtracker.Tracker
	proofs  *proofs
	live    *live
	budget  *circuitbreaker.Budget
	reports *reporter
	since   time.Time

	mu      sync.Mutex
	stores  []*Store
	monitor *stalenessmonitor.Monitor
	watches *Watches // nil: those of the informers are not known
}

// New makes the wiring and runs it until ctx, the term of leadership, ends. config is that of the
// process itself, which may list everything; mapper knows the versions of resources; events are
// recorded on owners that have waited too long.
func New(ctx context.Context, config *rest.Config, mapper meta.RESTMapper, events record.EventRecorder) (*Wiring, error) {
	metrics.Register()
	w := &Wiring{ctx: ctx, since: time.Now(), reports: &reporter{events: events},
		budget: circuitbreaker.NewBudget(circuitbreaker.DefaultRate, circuitbreaker.DefaultBurst)}
	var err error
	if w.proofs, err = newProofs(config, mapper); err != nil {
		return nil, err
	}
	if w.live, err = newLive(config, w.proofs); err != nil {
		return nil, err
	}
	w.tracker = rvtracker.New(rvtracker.Options{Metrics: metrics.Tracker{}, Fencer: w.proofs.prover.Fencer(),
		Prover: relistProver{w.proofs}, OnRewind: func() { relist(ctx) }, OnRewindOf: w.relistOf,
		SameStore: func(r schema.GroupResource) bool { return scheme.Scheme.IsGroupRegistered(r.Group) }})
	w.proofs.rewound = w.tracker.Rewound
	go w.tracker.Run(ctx)
	context.AfterFunc(ctx, w.proofs.prover.Close)
	return w, nil
}

// Clients returns a builder whose clients record the writes of every reconcile in the store of the
// controller that makes it, and write nothing once lease has run out, unless it is nil.
func Clients(builder clientbuilder.ControllerClientBuilder, lease *Lease) clientbuilder.ControllerClientBuilder {
	return wrappedBuilder{builder, func(next http.RoundTripper, at endpoint) http.RoundTripper {
		if lease != nil {
			next = leaderOnly{next, at, *lease}
		}
		return recorder{next, at}
	}}
}

// relist has every informer of the process list anew: whatever etcd was restored from, none of them has seen
// what the server shows now, and one that was cut off meanwhile is told nothing any more.
func relist(ctx context.Context) {
	n := cache.RelistReflectors()
	metrics.Relisted()
	klog.FromContext(ctx).Info("Resource versions went backward; relisting all informers", "informers", n)
}

// relistOf has the informers of one resource list anew, of which only is known that it was rewound.
func (w *Wiring) relistOf(resource schema.GroupResource) {
	w.mu.Lock()
	watches := w.watches
	w.mu.Unlock()
	if watches == nil {
		relist(w.ctx) // There is no other way.
		return
	}
	klog.FromContext(w.ctx).Info("Resource versions of one resource went backward; relisting its informers", "resource", resource,
		"watches", watches.Relist(resource))
}

// Terms hands out the stores of the term of leadership that began last. The seam's provider is read by running
// reconciles, so it is set once, before anything runs: with leader migration a process has a second term beside the first.
type Terms struct{ latest atomic.Pointer[Wiring] }

// Begin has the stores of controllers that are built from now on come from w.
func (t *Terms) Begin(w *Wiring) { t.latest.Store(w) }

// Store is the consistency.Provider of the process. Before the first term a store is upstream's.
func (t *Terms) Store(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
	if w := t.latest.Load(); w != nil {
		return w.Store(controller, stores)
	}
	return consistency.NewConsistencyStore(stores)
}

// Store is the consistency.Provider of a term.
func (w *Wiring) Store(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
	report := func(r rvtracker.StaleReport) { w.reports.report(w.ctx, r) }
	s := NewStore(w.tracker, controller, stores, rvtracker.WithStaleHandler(report))
	s.ctx, s.report = w.ctx, report
	var resources []schema.GroupResource
	for resource, informer := range stores {
		resources = append(resources, resource)
		store, ok := informer.(cache.Store)
		if !ok {
			continue
		}
		if err := w.proofs.register(w.ctx, resource, store, w.tracker.Register(resource, store)); err != nil {
			klog.FromContext(w.ctx).Error(err, "Nothing can be proven of a cache", "controller", controller, "resource", resource)
		}
	}
	slices.SortFunc(resources, byName)
	metrics.Tracker{}.Init(controller, resources...)
	s.prover, s.live, s.budget, s.reports = w.proofs, w.live, w.budget, w.reports
	s.start = &start{controller: controller}
	w.mu.Lock()
	w.stores = append(w.stores, s)
	w.mu.Unlock()
	go s.start.run(w.ctx, w.proofs, w.since, resources, s.wake)
	if controller == nodeLifecycle {
		return w.nodeStore(s)
	}
	return s
}

// nodeStore is the store of node lifecycle.
func (w *Wiring) nodeStore(s *Store) *NodeStore {
	n := NewNodeStore(s, w.budget, w.proofs.prove)
	n.report = w.reports.reportNodes
	if leases, ok := s.caches[leaseResource].(cache.Store); ok {
		n.reached = w.tracker.Register(leaseResource, leases).Reached
	}
	return n
}

// NewStore returns a controller's consistency store that is kept by the tracker and proves nothing.
func NewStore(tracker *rvtracker.Tracker, controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter, opts ...rvtracker.ControllerOption) *Store {
	tracked := make(map[schema.GroupResource]rvtracker.Store, len(stores))
	for resource, s := range stores {
		// Upstream hands over the informers' stores, as the narrowest interface that it needs.
		if t, ok := s.(rvtracker.Store); ok {
			tracked[resource] = t
		}
	}
	s := &Store{name: controller, caches: stores}
	s.Controller = tracker.ForController(controller, tracked, s.wake, opts...)
	return s
}
