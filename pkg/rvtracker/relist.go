// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Prover proves caches fresh.
type Prover interface {
	// Prove returns no error if the cache of resource has all that the server had at asOf. The error wraps
	// ErrStale if the cache was shown to lack something, and ErrUnprovable if asking again will not help. wait,
	// unless nil, returns when asking again may bring another answer, or when its context ends. The tracker
	// makes one call per resource at a time, and calls wait before the next.
	Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) (wait func(context.Context), err error)
}

// ErrStale is wrapped by a Prover's error if the cache was shown to lack something.
var ErrStale = errors.New("cache is stale")

// The tracker asks for a proof of a resource once in proofSpacing on average, and proofBurst times more without a pause: the caches that a
// controller reads often relist within a moment, as when all watches move to another apiserver, and each relist
// demands proofs of the others. Demands that come while a proof is under way or may not begin share the next one.
const (
	proofSpacing = 100 * time.Millisecond
	proofBurst   = 4
)

// demand holds all owners of one controller until one source is proven as new as another one that it reads, which has
// relisted. The tracker keeps it because it begins and ends in one step with the owners' records.
type demand struct {
	src *Source
	// asOf is when the last such list came, seq its number.
	asOf time.Time
	seq  uint64
	// asked is set once an owner waits for the proof, at since: nothing is proven before.
	asked bool
	since time.Time
	// given is set once the controller goes on without the proof (relistLimits).
	given bool
}

// beginReplace notes that a list is about to replace the content of the store. The store must call it before
// a controller can read the new content; Register adds it as an observer to stores of our client-go.
//
// A relist means that the watch could not be resumed: the store may jump by more than
// other caches have seen yet, and a controller that reads both would see a mix of two times. So from here on every
// controller that reads this store refuses its owners until its other caches are proven as new.
func (s *Source) beginReplace() {
	t := s.t
	now := t.opts.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s.replacing.Store(s.outdated || s.doubted)
	if t.opts.Prover == nil {
		return
	}
	first := !s.listed && s.pos().isZero()
	s.listed = true
	if first {
		return
	}
	t.relists++
	for _, c := range s.users {
		for _, other := range c.list {
			if other != s {
				c.demand(other, now)
			}
		}
	}
}

func (c *Controller) demand(s *Source, now time.Time) {
	d := c.demandOn(s)
	if d == nil {
		// While no proof of s comes, further relists hold no owners because of it.
		c.demands = append(c.demands, demand{src: s, given: s.givenUp, asked: s.givenUp, since: now})
		d = &c.demands[len(c.demands)-1]
		if !d.given {
			c.block(1)
		}
	}
	d.asOf, d.seq = now, c.t.relists
	if c.parked > 0 {
		c.ask(d, now)
	}
}

// block counts what blocks all owners of c.
func (c *Controller) block(delta int32) {
	c.blocked.Add(delta)
	c.busy.Add(delta)
}

// ask requests the proof that d demands. The limits of the hold count from here.
func (c *Controller) ask(d *demand, now time.Time) {
	if !d.asked {
		d.asked, d.since = true, now
		c.t.kickSafety()
	}
}

// demandOn returns nil if s needs no proof. The pointer is valid while the lock is held.
func (c *Controller) demandOn(s *Source) *demand {
	for i := range c.demands {
		if c.demands[i].src == s {
			return &c.demands[i]
		}
	}
	return nil
}

// holdOn is demandOn for a demand that holds the controller's owners.
func (c *Controller) holdOn(s *Source) *demand {
	if d := c.demandOn(s); d != nil && !d.given {
		return d
	}
	return nil
}

// awaitProof has o wait for what is demanded of s.
func (o *owner) awaitProof(d *demand, now time.Time) {
	o.ensure(d.src).flags |= flagUnproven
	o.c.ask(d, now)
}

// awaitProofs does so for all demands that hold the owners. It reports whether there are any.
func (o *owner) awaitProofs(now time.Time) bool {
	waits := false
	for i := range o.c.demands {
		if d := &o.c.demands[i]; !d.given {
			o.awaitProof(d, now)
			waits = true
		}
	}
	return waits
}

// meet ends the demand on s if the list numbered seq, or an earlier one, made it. It reports whether it did.
func (c *Controller) meet(s *Source, seq uint64, now time.Time) bool {
	d := c.demandOn(s)
	if d == nil || d.seq > seq {
		return false
	}
	held := !d.given
	last := len(c.demands) - 1
	*d = c.demands[last]
	c.demands = c.demands[:last]
	if held {
		c.endHold(s, outcomeSeen, now)
	}
	return true
}

// endHold lets the owners go that wait only for a proof of s, and returns their number.
func (c *Controller) endHold(s *Source, outcome string, now time.Time) (freed int) {
	c.block(-1)
	c.table.each(func(o *owner) {
		r := o.find(s)
		if r == nil || r.flags&flagUnproven == 0 {
			return
		}
		r.flags &^= flagUnproven
		if r.resolved() {
			o.release(r)
			c.t.finish(o, outcome, now)
			freed++
		}
	})
	return freed
}

// giveUpHolds ends the holds for which no proof has come within relistLimits, so that repair goes on. Other relists do not hold
// owners because of such a source until a proof of it succeeds; the tracker asks for one every recheck.
func (t *Tracker) giveUpHolds(now time.Time) {
	for _, s := range t.sources {
		limit := t.relistLimits.Of(s.shown)
		late := func(c *Controller) bool {
			d := c.holdOn(s)
			return d != nil && d.asked && now.Sub(d.since) >= limit
		}
		if !slices.ContainsFunc(s.users, late) {
			continue
		}
		s.givenUp, s.proofAfter = true, now.Add(recheck)
		var controllers []string
		freed := 0
		for _, c := range s.users {
			if d := c.holdOn(s); d != nil {
				d.given, d.asked = true, true
				freed += c.endHold(s, outcomeAbandoned, now)
				controllers = append(controllers, c.name)
				t.opts.Metrics.Dropped(c.name, s.resource, outcomeAbandoned)
			}
		}
		t.info("A cache was not proven in time as new as the relist of another one; reconciling without the proof, which disruptive actions still need",
			"resource", s.resource.String(), "controllers", controllers, "owners", freed, "waited", limit, "err", s.proofErr)
	}
}

// Unproven returns the resources whose caches were not proven as new as a relist of another one within
// OwnerLimits, nor since. Disruptive actions should ask for these proofs themselves.
func (c *Controller) Unproven() []schema.GroupResource {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	var out []schema.GroupResource
	for _, d := range c.demands {
		if d.given {
			out = append(out, d.src.resource)
		}
	}
	return out
}

// pendingProof is one proof to be made, for every list up to the one numbered seq, and, unless back is 0, for a store that went back so many times.
type pendingProof struct {
	src  *Source
	asOf time.Time
	seq  uint64
	back uint64
}

// dueProofs begins the proofs for which owners wait.
func (t *Tracker) dueProofs() []pendingProof {
	if t.opts.Prover == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.opts.clock.Now()
	var due []pendingProof
	for _, s := range t.sources {
		if s.proving || s.givenUp && now.Before(s.proofAfter) {
			continue
		}
		p := pendingProof{src: s}
		for _, c := range s.users {
			if d := c.demandOn(s); d != nil && d.asked && d.seq > p.seq {
				p.asOf, p.seq = d.asOf, d.seq
			}
		}
		if s.holdsBack(now) {
			p.back = s.backs
			if p.asOf.Before(s.backAt) {
				p.asOf = s.backAt
			}
		}
		if p.seq > 0 || p.back > 0 {
			s.proving = true
			due = append(due, p)
		}
	}
	return due
}

// backEvery is the time between proofs of a store that went back and was not proven.
const backEvery = 5 * time.Second

// holdsBack says that owners wait because the store went back, though a fence has shown that the server's RVs did not, and that a proof that it has what the server has
// is due: where nothing changes, no event brings it back to where it was before the next bookmark.
func (s *Source) holdsBack(now time.Time) bool {
	return !s.floor.isZero() && !s.wentBack && !now.Before(s.backAfter) && slices.ContainsFunc(s.users, func(c *Controller) bool { return c.parked > 0 })
}

// provedBack notes the outcome of a proof of a store that went back. One that has what the server had after that is not older than what was acted on.
func (t *Tracker) provedBack(p pendingProof, err error, now time.Time) {
	s := p.src
	if err != nil {
		s.backAfter = now.Add(backEvery)
		return
	}
	if p.back != s.backs || s.floor.isZero() {
		return // It went back once more, or is back.
	}
	t.info("A cache that went back is proven to have what the server has", "resource", s.resource.String(), "to", s.pos().String())
	s.endRegression()
}

// prove asks for one proof, and keeps the next from beginning too soon.
func (t *Tracker) prove(ctx context.Context, p pendingProof) {
	wait, err := t.opts.Prover.Prove(ctx, p.src.resource, p.asOf)
	t.proved(p, err)
	if wait != nil {
		wait(ctx)
	}
	now := t.opts.clock.Now()
	if rest := p.src.proofPace.ReserveN(now, 1).DelayFrom(now); rest > 0 {
		timer := t.opts.clock.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
	}
	t.endProof(p.src)
}

func (t *Tracker) endProof(s *Source) {
	t.mu.Lock()
	s.proving = false
	t.mu.Unlock()
	t.kickSafety()
}

// proved notes the outcome of a proof. Owners do not wait for what can never be proven.
func (t *Tracker) proved(p pendingProof, err error) {
	now := t.opts.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.back > 0 {
		t.provedBack(p, err, now)
	}
	if p.seq == 0 {
		return
	}
	t.opts.Metrics.Proof(p.src.resource, outcomeOf(err))
	hopeless := errors.Is(err, ErrUnprovable)
	if p.src.proofErr = err; err == nil {
		p.src.givenUp, p.src.shown = false, false
	} else {
		p.src.proofAfter = now.Add(recheck)
	}
	p.src.shown = p.src.shown || errors.Is(err, ErrStale)
	for _, c := range p.src.users {
		switch {
		case err == nil:
			c.meet(p.src, p.seq, now)
		case hopeless:
			if c.meet(p.src, p.seq, now) {
				t.opts.Metrics.Dropped(c.name, p.src.resource, outcomeAbandoned)
			}
		case errors.Is(err, ErrStale):
			c.shownStale(p.src)
		}
	}
	switch {
	case hopeless:
		t.info("A cache cannot be proven as new as the relist of another one; reconciling without the proof", "resource", p.src.resource.String(), "err", err)
	case err != nil:
		if logger := t.logger.V(2); logger.Enabled() {
			t.note(func() {
				logger.Info("A cache is not yet proven as new as the relist of another one", "resource", p.src.resource.String(), "err", err)
			})
		}
	}
}

// outcomeOf names the outcome of a proof, by its error, as package freshness does.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "Proven"
	case errors.Is(err, ErrStale):
		return "Stale"
	}
	return "Unknown"
}

// shownStale notes, for the owners that wait for a proof of s, that its cache is stale.
func (c *Controller) shownStale(s *Source) {
	if c.demandOn(s) == nil {
		return
	}
	c.table.each(func(o *owner) {
		if r := o.find(s); r != nil && r.flags&flagUnproven != 0 && o.park != nil && !o.park.stale {
			o.park.stale = true
			c.t.opts.Metrics.Stale(c.name, s.resource)
		}
	})
}
