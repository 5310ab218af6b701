// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// Wiring is this project's side of one term of leadership: one tracker, one prover, one budget of live
// reads, and a store for every controller that asks for one.
type Wiring struct {
	ctx     context.Context
	tracker *rvtracker.Tracker
	proofs  *proofs
	watches *transport.Watches
	term    consistencystore.Term

	mu     sync.Mutex
	stores []consistencystore.ControllerStore
	// starting has the controllers that wait for caches before they start; nil: none do.
	starting *sharedinformers.StartInformers
	monitor  *stalenessmonitor.Monitor
}

// New makes the wiring and runs it until ctx, the term of leadership, ends. config is that of the
// process itself, which may list everything; mapper knows the versions of resources; watches are those of
// the informers; events are recorded on owners that have waited too long.
func New(ctx context.Context, config *rest.Config, mapper meta.RESTMapper, watches *transport.Watches, events record.EventRecorder) (*Wiring, error) {
	metrics.Register()
	w := &Wiring{ctx: ctx, watches: watches}
	var err error
	if w.proofs, err = newProofs(config, mapper); err != nil {
		return nil, err
	}
	live, err := consistencystore.NewLive(config, w.proofs.prover.Lookup, w.proofs.few)
	if err != nil {
		return nil, err
	}
	reports := consistencystore.NewReporter(events)
	w.tracker = rvtracker.New(rvtracker.Options{Metrics: metrics.Tracker{}, Fencer: w.proofs.prover.Fencer(),
		Prover: relistProver{w.proofs}, OnRewind: func() { relist(ctx) }, OnRewindOf: w.relistOf,
		SameStore: func(r schema.GroupResource) bool { return scheme.Scheme.IsGroupRegistered(r.Group) },
		OnStale:   func(w rvtracker.Wait) { reports.Report(ctx, w, w.Awaits()) }})
	w.term = consistencystore.Term{Tracker: w.tracker, Prover: w.proofs, Caches: w, Live: live, Since: time.Now(),
		Budget: livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst), Reports: reports}
	go w.tracker.Run(ctx)
	context.AfterFunc(ctx, w.proofs.prover.Close)
	return w, nil
}

// Lead says how the lock of the term is held, before any store is made.
func (w *Wiring) Lead(leadership transport.Leadership) { w.term.Leadership = leadership }

// relist has every informer of the process relist: after a restore of etcd none of them has seen
// what the server shows now, and one whose watch broke meanwhile would not learn of it.
func relist(ctx context.Context) {
	n := cache.RelistReflectors()
	metrics.Relisted()
	klog.FromContext(ctx).Info("Resource versions went backward; relisting all informers", "informers", n)
}

// relistOf has the informers of one resource relist that have not begun to do so since: the resource versions of only this one are known to
// have gone backward, or its list has yet to come.
func (w *Wiring) relistOf(resource schema.GroupResource, since time.Time) {
	klog.FromContext(w.ctx).Info("Resource versions went backward; relisting the informers of a resource", "resource", resource,
		"watches", w.watches.Relist(resource, since))
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
	s := w.term.New(w.ctx, controller, stores)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stores = append(w.stores, s)
	return s
}

// Register has the tracker and the prover look at a cache. It does not wait for an answer to the fence that it sends.
func (w *Wiring) Register(ctx context.Context, resource schema.GroupResource, store cache.Store) error {
	return w.proofs.register(ctx, resource, store, w.tracker.Register(resource, store))
}

// Registered implements consistencystore.Caches.
func (w *Wiring) Registered(resource schema.GroupResource) bool {
	_, known := w.proofs.prover.Lookup(resource)
	return known
}

// StartInformers returns the factory with informers whose controllers start only once the caches are proven as new as the start of
// leadership: those that waits names, by the names of --controllers.
func (w *Wiring) StartInformers(factory informers.SharedInformerFactory, mapper meta.RESTMapper, waits func(controller string) bool) *sharedinformers.StartInformers {
	starting := sharedinformers.NewStartInformers(w.ctx, factory, sharedinformers.StartOptions{
		Prove:    w.proofs.Prove,
		Wait:     w.proofs.Wait,
		Register: w.Register,
		Fenced:   w.proofs.fenced,
		Mapper:   mapper,
		Since:    w.term.Since,
		Waits:    waits,
	})
	w.mu.Lock()
	w.starting = starting
	w.mu.Unlock()
	return starting
}
