// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/circuitbreaker"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Monitor measures how old the informers' caches are until the term of leadership ends. Its fences are
// those of the proofs, so that what it has proven nobody else has to ask for. A watch that it finds stalled is
// ended, if it is one of watches. How far event handlers are is told by handlers.
func (w *Wiring) Monitor(informers func() map[schema.GroupVersionResource]stalenessmonitor.Informer, watches *Watches, handlers *Handlers) {
	m := stalenessmonitor.New(stalenessmonitor.Options{
		Prover:    w.proofs.prover,
		Metrics:   w.proofs.counts,
		Informers: informers,
		Protected: w.reads,
		Register: func(gvr schema.GroupVersionResource, informer stalenessmonitor.Informer) {
			w.follow(gvr, informer, handlers)
		},
		Forget:   w.unfollow,
		Handlers: w.deliveries,
		Stalled: func(gvr schema.GroupVersionResource, reason string) {
			if reason == stalenessmonitor.ReasonWatch {
				w.proofs.counts.WatchesEnded(gvr, watches.End(w.ctx, gvr))
			}
		},
	})
	w.proofs.mu.Lock()
	w.proofs.onRewound, w.proofs.onFenced = m.Rewound, m.Fenced
	w.proofs.mu.Unlock()
	w.mu.Lock()
	w.monitor, w.watches = m, watches
	w.mu.Unlock()
	go func() {
		m.Run(w.ctx)
		w.mu.Lock()
		w.monitor = nil
		w.mu.Unlock()
	}()
}

// reads reports whether a protected controller reads the cache of a resource.
func (w *Wiring) reads(gvr schema.GroupVersionResource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stores {
		if _, ok := s.caches[gvr.GroupResource()]; ok {
			return true
		}
	}
	return false
}

// follow has the tracker and the prover look at an informer's cache, and the tracker at its handlers.
func (w *Wiring) follow(gvr schema.GroupVersionResource, informer stalenessmonitor.Informer, handlers *Handlers) {
	store := informer.GetStore()
	source := w.tracker.Register(gvr.GroupResource(), store)
	source.Follow(func() []*rvtracker.Delivery { return handlers.deliveries(store) })
	w.proofs.view(gvr, store, source)
}

// deliveries are those of the handlers of an informer that is followed.
func (w *Wiring) deliveries(gvr schema.GroupVersionResource) []*rvtracker.Delivery {
	if source := w.proofs.source(gvr); source != nil {
		return source.Deliveries()
	}
	return nil
}

// unfollow undoes follow, unless a controller waits for its own writes in that cache.
func (w *Wiring) unfollow(gvr schema.GroupVersionResource, informer stalenessmonitor.Informer) {
	if source := w.tracker.Unregister(informer.GetStore()); source != nil {
		w.proofs.forget(gvr, source)
	}
}

// Caches implements stalenessmonitor.Term.
func (w *Wiring) Caches() []stalenessmonitor.Cache {
	if m := w.current(); m != nil {
		return m.Caches()
	}
	return nil
}

// Objects implements stalenessmonitor.Term.
func (w *Wiring) Objects(gvr schema.GroupVersionResource) int {
	if m := w.current(); m != nil {
		return m.Objects(gvr)
	}
	return 0
}

func (w *Wiring) current() *stalenessmonitor.Monitor {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.monitor
}

// Waits implements stalenessmonitor.Term: everything that is not done now because a cache may be stale.
func (w *Wiring) Waits(out *stalenessmonitor.Longest) {
	w.tracker.EachWaiting(out.Wants, func(wait rvtracker.Wait) {
		out.Add(stalenessmonitor.Wait{
			Controller: wait.Controller, Owner: key(wait.Owner), Resource: wait.Resource, Since: wait.Since,
			For: fmt.Sprintf("%s, the cache is at %q", wait.Awaits(), wait.SeenRV), Why: why(wait),
		})
	})
	w.mu.Lock()
	stores := w.stores
	w.mu.Unlock()
	for _, s := range stores {
		s.waits(out)
	}
}

func why(w rvtracker.Wait) string {
	if w.ProvenStale {
		return string(w.Why) + ": the server has it, so the cache is stale"
	}
	return string(w.Why)
}

// waiter is a breaker, or a guard of evictions, that says what it puts off.
type waiter interface{ Waits() []circuitbreaker.Wait }

// guarded notes a guard of the controller's disruptive actions, whose waits are then shown.
func guarded[G waiter](s *Store, guard G) G {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guards = append(s.guards, guard)
	return guard
}

// waits are the owners that wait for a proof, for the first one, or for the outcome of a write, and what the guards put off.
func (s *Store) waits(out *stalenessmonitor.Longest) {
	s.unsettled.waits(out)
	inParts(&s.mu, func() map[types.NamespacedName]refusal { return s.retrying }, func(owner types.NamespacedName, r refusal) func() {
		if !out.Wants(r.since) {
			return nil
		}
		resource, since, proof := r.resource, r.since, r.proof
		return func() {
			out.Add(stalenessmonitor.Wait{
				Controller: s.name, Owner: key(owner), Resource: resource, Since: since,
				For: "a proof that the cache is fresh, before something is deleted", Why: proof.String(),
			})
		}
	})
	s.mu.Lock()
	guards := s.guards
	s.mu.Unlock()
	for _, guard := range guards {
		for _, w := range guard.Waits() {
			if out.Wants(w.Since) {
				out.Add(stalenessmonitor.Wait{Controller: s.name, Owner: w.Object, Resource: w.Resource, Since: w.Since, For: w.For, Why: w.Why})
			}
		}
	}
	if s.start == nil {
		return
	}
	inParts(&s.start.mu, func() map[types.NamespacedName]time.Time { return s.start.waiting }, func(owner types.NamespacedName, since time.Time) func() {
		if !out.Wants(since) {
			return nil
		}
		behind := s.start.behind
		return func() {
			out.Add(stalenessmonitor.Wait{
				Controller: s.name, Owner: key(owner), Resource: behind.Resource.GroupResource(), Since: since,
				For: "proof that the caches are as new as the start of leadership", Why: behind.String(),
			})
		}
	})
}

// lookedAtAtOnce is how many entries of a map are looked at in one hold of its lock.
const lookedAtAtOnce = 256

// inParts looks at the entries of a map that mu guards, some at a time, and does what look returns, unless that is nil, without
// mu. Entries that come or go meanwhile may be left out.
func inParts[K comparable, V any](mu *sync.Mutex, entries func() map[K]V, look func(K, V) (do func())) {
	var found []func()
	looked := 0
	flush := func() {
		mu.Unlock()
		for _, do := range found {
			do()
		}
		found, looked = found[:0], 0
		mu.Lock()
	}
	mu.Lock()
	for k, v := range entries() { // A range goes on over a map that has changed.
		if do := look(k, v); do != nil {
			found = append(found, do)
		}
		if looked++; looked >= lookedAtAtOnce {
			flush()
		}
	}
	flush()
	mu.Unlock()
}

var _ stalenessmonitor.Term = (*Wiring)(nil)

var _ stalenessmonitor.Metrics = (*metrics.Staleness)(nil)
