// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "time"

// Limits are how long to wait for a proof at most, before going on without it: an owner that is never reconciled suffers as much as
// one that is reconciled on a stale cache, and a server may refuse proofs without end and accept writes all the same.
type Limits struct {
	// Unknown is the limit while it is not known whether the cache is stale, Stale the one once it was shown to be.
	Unknown, Stale time.Duration
}

var (
	// OwnerLimits are for an owner that is not reconciled, and for a value that is published, such as what a quota has used.
	// Disruptive actions still need the proof after that.
	OwnerLimits = Limits{Unknown: time.Minute, Stale: 5 * time.Minute}
	// FirstValueLimits are for a value that was never published.
	FirstValueLimits = Limits{Unknown: 10 * time.Second, Stale: 10 * time.Second}
	// StartLimits are for a controller that starts as a whole, counted from the first list of the cache.
	StartLimits = Limits{Unknown: 10 * time.Second, Stale: time.Minute}
)

// Of is the limit for a cache, by whether it was shown to be stale.
func (l Limits) Of(stale bool) time.Duration {
	if stale {
		return l.Stale
	}
	return l.Unknown
}

// reason is what an owner waits for, in one word.
type reason uint8

const (
	// reasonOwnWrites: a cache has yet to show what was written or deleted for the owner.
	reasonOwnWrites reason = iota
	// reasonRelist: a cache is not proven as new as another one, which was relisted.
	reasonRelist
	// reasonRewind: resource versions went backward or may have, or a cache went back.
	reasonRewind
)

var reasons = [...]string{reasonOwnWrites: "own_writes", reasonRelist: "relist", reasonRewind: "rewind"}

func (w why) reason() reason {
	switch w {
	case whyUnproven:
		return reasonRelist
	case whyRelist, whyDoubt, whyRegressed, whySuspect:
		return reasonRewind
	}
	return reasonOwnWrites
}

// tally is how many owners wait, by reason.
type tally [len(reasons)]int

// recount counts a parked owner by what it waits for now.
func (o *owner) recount() {
	src := o.waitsFor()
	now := src.kind(o.find(src)).reason()
	o.c.parkedFor[o.park.reason]--
	o.c.parkedFor[now]++
	o.park.reason = now
}

// recount does so for all parked owners. A tick calls it, so that an owner which waits for another reason than before is counted by that.
func (c *Controller) recount() {
	c.table.each(func(o *owner) {
		if o.park != nil {
			o.recount()
		}
	})
	c.countParked()
}

// countParked gives Metrics the numbers of parked owners that have changed.
func (c *Controller) countParked() {
	for r, n := range c.parkedFor {
		if c.parkedCounted[r] != n {
			c.parkedCounted[r] = n
			c.t.opts.Metrics.Parked(c.name, reasons[r], n)
		}
	}
}
