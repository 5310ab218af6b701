// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// tickPeriod is the grain of the safety timer.
	tickPeriod = time.Second
	// minFenceInterval keeps a store that goes back again and again from asking for
	// a fence each time.
	minFenceInterval = time.Second
	// failedFenceInterval is the same after a fence that failed.
	failedFenceInterval = 5 * time.Second
	// firstCheck is how long an owner is parked before the first fence, and fenceTimeout bounds one.
	firstCheck   = 10 * time.Second
	fenceTimeout = 10 * time.Second
	// reportAfter is how long an owner is parked before Options.OnStale is called.
	reportAfter = time.Minute
)

func (t *Tracker) runSafety(ctx context.Context) {
	ticker := t.opts.clock.NewTicker(tickPeriod)
	defer ticker.Stop()
	var reads sync.WaitGroup
	defer reads.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			t.tick()
		case <-t.safetyCh:
		}
		for _, f := range t.dueFences() {
			reads.Go(func() { t.fence(ctx, f) })
		}
		for _, p := range t.dueProofs() {
			reads.Go(func() { t.prove(ctx, p) })
		}
	}
}

// tick does what depends on time alone; fences come after it.
func (t *Tracker) tick() {
	for _, s := range t.snapshotSources() {
		s.poll()
	}
	now := t.opts.clock.Now()
	t.mu.Lock()
	for _, s := range slices.Clone(t.sources) {
		s.settleLocked()
		if len(s.side) > 0 && now.Sub(s.lastSweep) >= recheck {
			s.lastSweep, s.sweep = now, true
			s.touch()
		}
		if s.hopeless(now) {
			t.abandon(s, now)
		}
		if s.heldTooLong(now) {
			t.trustAnyway(s, "because nothing has settled that in time")
		}
		s.relistAgain(now)
	}
	for _, c := range t.controllers {
		if c.parked > 0 {
			c.recount()
			c.report(now)
		}
	}
	t.giveUpHolds(now)
	if t.spreadDue {
		t.spread(nil, now)
	}
	t.mu.Unlock()
}

// report reports the owners that have waited for reportAfter, some in each tick: of many that wait, a few show why.
func (c *Controller) report(now time.Time) {
	t := c.t
	if len(t.notes) > maxNotes/2 {
		return // Earlier reports are not done yet.
	}
	var reports []Wait
	more := 0
	c.table.each(func(o *owner) {
		if o.park == nil || o.park.reported || now.Sub(o.park.since) < reportAfter {
			return
		}
		if len(reports) == maxReports {
			more++
			return
		}
		o.park.reported = true
		w := c.wait(o, o.name, o.waitsFor())
		w.Further = len(reports) >= loggedOwners
		reports = append(reports, w)
	})
	if len(reports) == 0 {
		return
	}
	if n := len(reports) - loggedOwners + more; n > 0 {
		t.info("More objects wait for caches", "controller", c.name, "owners", n, "parked", c.parked)
	}
	if t.opts.OnStale != nil {
		t.note(func() {
			for _, r := range reports {
				t.opts.OnStale(r)
			}
		})
	}
}

// heldTooLong says that the store, which went back or may show the time before a rewind, has kept owners waiting for as long as OwnerLimits let it. It counts
// as stale once a fence has succeeded since. Why fences fail does not matter: the server may refuse them without end, and take writes.
func (s *Source) heldTooLong(now time.Time) bool {
	if s.heldSince.IsZero() {
		return false
	}
	held, stale := now.Sub(s.heldSince), s.outdated || s.doubt.fenced || !s.doubted && !s.wentBack
	return held >= OwnerLimits.Stale || !stale && min(held, now.Sub(s.doubt.since)) >= OwnerLimits.Unknown
}

// hopeless says that no proof has come for maxWait, and that none can come, or that what is awaited may be of before a rewind.
func (s *Source) hopeless(now time.Time) bool {
	unprovable := s.t.opts.Fencer == nil || s.unprovable || s.trustedAnyway
	return unprovable && now.Sub(s.lastAnswer) >= maxWait
}

// abandon lets owners go that were parked for a record on s for maxWait while nothing could be proven: being
// stuck is as bad as being stale. They get what upstream would give them.
func (t *Tracker) abandon(s *Source, now time.Time) {
	if !s.usable() && now.Sub(s.blockedSince) >= maxWait {
		t.trustAnyway(s, "because the server gives no proof")
	}
	abandoned := 0
	for _, r := range s.parkedRecords() {
		o := r.owner
		if r.src != s || o == nil || o.park == nil || now.Sub(o.park.since) < maxWait {
			continue
		}
		t.opts.Metrics.Dropped(o.c.name, s.resource, outcomeAbandoned)
		if abandoned++; abandoned <= loggedOwners {
			t.info("Reconciling an object without the proof that it waited for: the server gives none", "controller", o.c.name, "owner", o.name.String(), "resource", s.resource.String())
		}
		o.release(r)
		t.finish(o, outcomeAbandoned, now)
		if abandoned%drainLimit == 0 {
			t.mu.Unlock() // For others to get the lock.
			t.mu.Lock()
		}
	}
	if abandoned > loggedOwners {
		t.info("Reconciling more objects before their caches have what they waited for", "owners", abandoned-loggedOwners, "resource", s.resource.String())
	}
}

// trustAnyway lets controllers use a store.
func (t *Tracker) trustAnyway(s *Source, why string) {
	t.info("Using a cache that went back, or may predate a rewind, "+why, "resource", s.resource.String())
	s.trustedAnyway = s.outdated || s.doubted
	s.endRegression()
}

// parkedRecords returns the records on s of parked owners.
func (s *Source) parkedRecords() []*record {
	var out []*record
	for _, e := range s.heap {
		if e.rec.owner != nil && e.rec.owner.park != nil {
			out = append(out, e.rec)
		}
	}
	for _, r := range s.side {
		if r.idx < 0 && r.owner.park != nil {
			out = append(out, r)
		}
	}
	return out
}

// pendingFence is one read to be made for every source of its resource.
type pendingFence struct {
	resource schema.GroupResource
	tokens   []FenceToken
}

// dueFences starts the fences that are due: begun here, before they are sent.
func (t *Tracker) dueFences() []pendingFence {
	if t.opts.Fencer == nil {
		return nil
	}
	now := t.opts.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	due := map[schema.GroupResource]bool{}
	var order []schema.GroupResource
	for _, s := range t.sources {
		if !due[s.resource] && s.fenceDue(now) {
			due[s.resource] = true
			order = append(order, s.resource)
		}
	}
	fences := make([]pendingFence, 0, len(order))
	for _, gr := range order {
		f := pendingFence{resource: gr}
		inFlight := false
		for _, s := range t.sources {
			inFlight = inFlight || (s.resource == gr && s.fencing)
		}
		if inFlight {
			continue
		}
		for _, s := range t.sources {
			if s.resource == gr {
				s.fencing, s.needFence, s.lastFence = true, false, now
				f.tokens = append(f.tokens, s.beginFence())
			}
		}
		fences = append(fences, f)
	}
	return fences
}

func (s *Source) fenceDue(now time.Time) bool {
	since := now.Sub(s.lastFence)
	if s.needFence {
		if s.fenceFailed {
			return since >= failedFenceInterval
		}
		return since >= minFenceInterval
	}
	if since < recheck {
		return false
	}
	if s.doubted && !s.doubt.fenced || !s.usable() && now.Sub(s.blockedSince) >= firstCheck {
		return true
	}
	return s.parkedFor(firstCheck, now)
}

// parkedFor reports whether an owner with a record on s has been parked for so long.
func (s *Source) parkedFor(d time.Duration, now time.Time) bool {
	long := func(r *record) bool { return r.owner != nil && r.owner.park != nil && now.Sub(r.owner.park.since) >= d }
	return slices.ContainsFunc(s.heap, func(e heapEntry) bool { return long(e.rec) }) || slices.ContainsFunc(s.side, long)
}

// fence makes one read. An error that is not ErrUnprovable is inconclusive: the
// server is busy or away, its state is unknown, and the owners go on waiting, of a store that went back, or may predate a rewind, as heldTooLong says.
func (t *Tracker) fence(ctx context.Context, f pendingFence) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	rv, err := t.opts.Fencer.Fence(ctx, f.resource)
	if err == nil {
		for _, tok := range f.tokens {
			if _, failed := tok.src.ObserveFence(tok, rv); errors.Is(failed, ErrUnprovable) {
				err = failed
			}
		}
	}
	if err != nil {
		t.logger.V(2).Info("Fence failed", "resource", f.resource.String(), "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(f.tokens, func(tok FenceToken) bool { return !tok.src.unregistered }) {
		t.opts.Metrics.Fence(f.resource, err)
	}
	for _, tok := range f.tokens {
		tok.src.fencing = false
		tok.src.unprovable = errors.Is(err, ErrUnprovable)
		// One that was overtaken by another, which has shown a rewind, is no sign that the server does not answer.
		tok.src.fenceFailed = err != nil && tok.epoch == tok.src.epoch
		if err != nil && !tok.src.unprovable && (tok.src.suspects() || !tok.src.usable()) {
			tok.src.needFence = true
		}
	}
	t.kickSafety()
}

func (s *Source) suspects() bool {
	for _, r := range s.side {
		if r.flags&flagSuspect != 0 {
			return true
		}
	}
	return false
}

func (t *Tracker) snapshotSources() []*Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*Source(nil), t.sources...)
}
