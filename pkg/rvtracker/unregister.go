// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "slices"

// Unregister forgets a store and returns its source, or nil if it was not registered, or if a controller
// still needs it. From then on the tracker neither takes fences nor counts anything for the source; waiters get
// errUnregistered. The store may still call its observers, without effect. Register makes a new source for it.
// Unregister must not run at the same time as ForController for the same store.
func (t *Tracker) Unregister(store Store) *Source {
	last := false
	t.mu.Lock()
	s := t.byStore[store]
	defer func() {
		t.mu.Unlock()
		if last {
			t.opts.Metrics.Forgotten(s.resource)
		}
	}()
	if s == nil || len(s.users) > 0 {
		return nil
	}
	delete(t.byStore, store)
	t.sources = slices.DeleteFunc(t.sources, func(other *Source) bool { return other == s })
	s.unregistered = true
	if h := t.hooks[store]; h != nil {
		h.source.Store(nil)
	}
	last = !slices.ContainsFunc(t.sources, func(other *Source) bool { return other.resource == s.resource })
	for len(s.heap) > 0 { // No controller uses it, so these are bare waiters.
		r := s.heap[0].rec
		s.heap.remove(r)
		t.call(r.extra.fn, errUnregistered)
	}
	s.gate.Store(noGate)
	return s
}
