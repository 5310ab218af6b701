// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "sync/atomic"

// Delivery is how far one event handler of an informer has been handed events, which may be less than the store has: each
// handler has a queue of its own. Event and Bookmark are for the handler's own goroutine; they take no lock and
// allocate nothing. The other methods are safe for concurrent use.
type Delivery struct {
	name string
	cur  atomic.Uint64
}

// NewDelivery returns the delivery of a handler that has been handed nothing yet.
func NewDelivery(name string) *Delivery { return &Delivery{name: name} }

// Name is that of the handler.
func (d *Delivery) Name() string { return d.name }

// Event tells that the handler has handled an event of an object at rv. A list and a resync bring objects in any
// order, so an event never takes the delivery back.
func (d *Delivery) Event(rv string) {
	if v, ok := parseFast(rv); ok && v > d.cur.Load() {
		d.cur.Store(v)
	}
}

// Bookmark tells that everything up to rv has been handed to the handler, and nothing after it. Plug it into
// ResourceEventHandlerFuncs.BookmarkFunc (KEP-5647).
func (d *Delivery) Bookmark(rv string) {
	if v, ok := parseFast(rv); ok {
		d.cur.Store(v)
	}
}

// Position is the RV up to which the handler has been handed everything, but for a list whose end it has not reached yet.
// It is 0 before the first, and leaves out RVs that are no numbers of up to 19 digits.
func (d *Delivery) Position() uint64 { return d.cur.Load() }

// Follow has the source show the deliveries of its handlers: deliveries returns those that there are now.
func (s *Source) Follow(deliveries func() []*Delivery) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.deliveries = deliveries
}

// Deliveries are those of the handlers of the source's informer; none if it was not told of them.
func (s *Source) Deliveries() []*Delivery {
	s.t.mu.Lock()
	deliveries := s.deliveries
	s.t.mu.Unlock()
	if deliveries == nil {
		return nil
	}
	return deliveries()
}
