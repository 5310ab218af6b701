// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"strconv"
	"sync/atomic"
)

// Delivery is the position of one event handler of an informer, which may be behind the store: each
// handler has a queue of its own. Event and Bookmark are for the handler's own goroutine; they take no lock and
// allocate nothing. The other methods are safe for concurrent use.
type Delivery struct {
	name string
	cur  atomic.Uint64
	// list is the RV of the last list that the handler has not reached the end of. 0: there is none.
	list atomic.Uint64
}

// NewDelivery returns the delivery of a handler that has received nothing yet.
func NewDelivery(name string) *Delivery { return &Delivery{name: name} }

// Name is that of the handler.
func (d *Delivery) Name() string { return d.name }

// Event notes that the handler has handled an event of an object at rv. A list and a resync bring objects in any
// order, so an event never moves the delivery back.
func (d *Delivery) Event(rv string) {
	if v, ok := number(rv); ok && v > d.cur.Load() {
		d.cur.Store(v)
	}
}

// Bookmark notes that the handler has received everything up to rv, and nothing after it. Use it as
// ResourceEventHandlerFuncs.BookmarkFunc (KEP-5647).
func (d *Delivery) Bookmark(rv string) {
	v, ok := number(rv)
	if !ok {
		return
	}
	first := d.cur.Swap(v) == 0
	// Bookmarks from before the list may still be queued, and after a rewind these are newer. The first one that a handler
	// gets ends what it was given when it was added, which may be newer than the last list.
	if list := d.list.Load(); v == list || first && v > list {
		d.list.CompareAndSwap(list, 0)
	}
}

// Listed notes that a list at rv replaces the store: the handler has been told all of it once it gets the bookmark at its end. Call it before
// the store has the list.
func (d *Delivery) Listed(rv string) {
	if v, ok := number(rv); ok {
		d.list.Store(v)
	}
}

// Told is Position, but 0 while the handler has not reached the end of a list.
func (d *Delivery) Told() uint64 {
	if position := d.Position(); d.list.Load() == 0 {
		return position
	}
	return 0
}

// Position is the RV up to which the handler has received everything, except a list whose end it has not reached yet.
// It is 0 before the first event, and ignores RVs that are not numbers of up to 19 digits.
func (d *Delivery) Position() uint64 { return d.cur.Load() }

// number reads what etcd writes: a number of up to 19 digits without a leading zero.
func number(rv string) (n uint64, ok bool) {
	if rv == "" || len(rv) > 19 || rv[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	return n, err == nil
}
