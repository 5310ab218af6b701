// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "time"

// Limits are for how long at most a proof is waited for, and then done without: what never changes does as much harm as what is
// done on a stale cache, and a server may refuse proofs without end and take writes all the same.
type Limits struct {
	// Unknown is while it is not known whether the cache is stale, Stale once it was shown to be.
	Unknown, Stale time.Duration
}

var (
	// OwnerLimits are for an owner that is not reconciled, and for a value that is published, such as what a quota has used.
	// Disruptive actions need the proof after that all the same.
	OwnerLimits = Limits{Unknown: time.Minute, Stale: 5 * time.Minute}
	// FirstValueLimits are for a value that there is none of yet.
	FirstValueLimits = Limits{Unknown: 10 * time.Second, Stale: 10 * time.Second}
	// StartLimits are for a controller that starts as a whole, counted from the first list of the cache.
	StartLimits = Limits{Unknown: 10 * time.Second, Stale: time.Minute}
)

// Of is the limit for a cache that was shown to be stale, or not.
func (l Limits) Of(stale bool) time.Duration {
	if stale {
		return l.Stale
	}
	return l.Unknown
}

// What owners wait for, as the metric of parked owners and the lists of who waits name it.
const (
	// ForOwnWrites: a cache has yet to show what was written or deleted for the owner.
	ForOwnWrites = "own_writes"
	// ForRelist: a cache is not proven as new as another one, which was relisted.
	ForRelist = "relist"
	// ForRewind: resource versions went backward, or that is to be found out, or a cache went back.
	ForRewind = "rewind"

	// The tracker leaves these to its users, as it does WhyUnsettled.

	// ForStart: a cache is not proven as new as the start of leadership.
	ForStart = "start"
	// ForUnsettled: it is not known whether a write was made whose answer was lost.
	ForUnsettled = "unsettled_write"
	// ForAction: a cache is not proven as new as a disruptive action needs it. The rest of the reconcile goes on.
	ForAction = "action"
)

// reason is one of the tracker's.
type reason uint8

const (
	reasonOwnWrites reason = iota
	reasonRelist
	reasonRewind
)

var reasons = [...]string{reasonOwnWrites: ForOwnWrites, reasonRelist: ForRelist, reasonRewind: ForRewind}

// Reason is what an owner that waits so waits for, in short.
func (w Why) Reason() string { return reasons[w.reason()] }

func (w Why) reason() reason {
	switch w {
	case WhyUnproven:
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

// recount does so for all. An owner that waits for another reason than before is counted by it after a tick at the latest.
func (c *Controller) recount() {
	c.table.each(func(o *owner) {
		if o.park != nil {
			o.recount()
		}
	})
	c.tellParked()
}

// tellParked tells Metrics of the numbers of parked owners that are others than before.
func (c *Controller) tellParked() {
	for r, n := range c.parkedFor {
		if c.parkedTold[r] != n {
			c.parkedTold[r] = n
			c.t.opts.Metrics.Parked(c.name, reasons[r], n)
		}
	}
}
