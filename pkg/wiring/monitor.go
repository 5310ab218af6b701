// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// Monitor measures how old the informers' caches are until the term of leadership ends. It shares fences and
// proofs with the controllers. It ends a watch that it finds stalled. handlers has the positions of event handlers.
func (w *Wiring) Monitor(informers func() map[schema.GroupVersionResource]stalenessmonitor.Informer, handlers *sharedinformers.Handlers) {
	m := stalenessmonitor.New(stalenessmonitor.Options{
		Prover:    w.proofs.prover,
		Metrics:   w.proofs.counts,
		Informers: informers,
		Protected: w.reads,
		Register:  w.follow,
		Forget:    w.unfollow,
		Handlers: func(i stalenessmonitor.Informer) []*stalenessmonitor.Delivery {
			return handlers.Deliveries(i.GetStore())
		},
		Stalled: func(gvr schema.GroupVersionResource, reason string, relist bool) {
			if reason == stalenessmonitor.ReasonWatch {
				w.proofs.counts.WatchesEnded(gvr, w.watches.End(w.ctx, gvr, relist))
			}
		},
		Lost: func(gvr schema.GroupVersionResource) {
			n := w.watches.Relist(gvr.GroupResource(), time.Now())
			w.proofs.counts.WatchesEnded(gvr, n)
			klog.FromContext(w.ctx).Info("A cache lacks a change that it has passed, and that no watch will bring; its informer relists", "resource", gvr, "watches", n)
		},
	})
	w.proofs.prover.Tell(m.Fenced)
	w.mu.Lock()
	w.monitor = m
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
		if s.Reads(gvr.GroupResource()) {
			return true
		}
	}
	return false
}

// follow registers an informer's cache with the tracker and the prover.
func (w *Wiring) follow(gvr schema.GroupVersionResource, informer stalenessmonitor.Informer) {
	store := informer.GetStore()
	w.proofs.prover.Track(gvr, store, w.tracker.Register(gvr.GroupResource(), store))
}

// unfollow undoes follow, unless a controller waits for its own writes in that cache.
func (w *Wiring) unfollow(gvr schema.GroupVersionResource, informer stalenessmonitor.Informer) {
	if source := w.tracker.Unregister(informer.GetStore()); source != nil {
		w.proofs.forget(gvr, source)
	}
}

// Caches implements stalenessz.Term.
func (w *Wiring) Caches() []stalenessmonitor.Cache {
	if m := w.current(); m != nil {
		return m.Caches()
	}
	return nil
}

// Objects implements stalenessz.Term.
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

// Recorded implements stalenessz.Term.
func (w *Wiring) Recorded() int { return w.tracker.Recorded() }

// Waits implements stalenessz.Term: all that is not done now because a cache may be stale.
func (w *Wiring) Waits(out *stalenessz.Longest) {
	w.mu.Lock()
	stores, starting := w.stores, w.starting
	w.mu.Unlock()
	for _, s := range stores {
		s.Waits(out)
	}
	if starting != nil {
		starting.Waits(out)
	}
}

var _ stalenessz.Term = (*Wiring)(nil)
