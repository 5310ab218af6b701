// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Controller is one controller's handle. It has the method set of upstream's
// pkg/controller/util/consistency.ConsistencyStore, and unlike that one allows
// all of it concurrently for one owner.
type Controller struct {
	t       *Tracker
	name    string
	sources map[schema.GroupResource]*Source
	list    []*Source
	plain   []*Source // those that have to be polled
	wake    func(types.NamespacedName)

	table *ownerTable
	// busy counts owners with records, and what blocks all owners: zero means that every owner is ready.
	busy atomic.Int32
	// blocked counts sources that are not usable, and those that have to be proven first.
	blocked atomic.Int32

	// The rest is guarded by Tracker.mu.
	parked        int
	parkedFor     tally
	parkedCounted tally // as Metrics last had it
	demands       []demand
}

// ForController registers the stores that a controller reads and returns its
// handle. A nil store is left out, as upstream does. wake is called from the
// tracker's goroutine, without a lock held, once for each parked owner that has
// become ready; it must not block (queue.Add). name labels metrics.
func (t *Tracker) ForController(name string, stores map[schema.GroupResource]Store, wake func(owner types.NamespacedName)) *Controller {
	c := &Controller{
		t:       t,
		name:    name,
		sources: make(map[schema.GroupResource]*Source, len(stores)),
		wake:    wake,
		table:   newOwnerTable(),
	}
	for gr, store := range stores {
		if store == nil {
			continue
		}
		s := t.Register(gr, store)
		c.sources[gr] = s
		c.list = append(c.list, s)
		if !s.hooked {
			c.plain = append(c.plain, s)
		}
	}
	slices.SortStableFunc(c.list, bySource)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range c.list {
		s.users = append(s.users, c)
		if s.blocked {
			c.blocked.Add(1)
			c.busy.Add(1)
		}
	}
	t.controllers = append(t.controllers, c)
	return c
}

// Sent is what was known of a store and its resource when a write was sent. The zero value means unknown.
type Sent struct {
	// At is when it was sent.
	At    time.Time
	pos   version
	token FenceToken
}

// Sending notes how far the store of resource has got, just before a write is sent, for Wrote and Source.ObserveWrite.
func (c *Controller) Sending(resource schema.GroupResource) Sent {
	s := c.sources[resource]
	if s == nil {
		return Sent{}
	}
	s.poll()
	now := c.t.opts.clock.Now()
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return Sent{At: now, pos: s.pos(), token: s.token()}
}

// Suspect reports whether rv, the answer to a write, is not above what the store had when that was sent.
func (s Sent) Suspect(rv string) bool {
	v, ok := parseVersion(rv)
	return ok && s.suspect(v)
}

func (s Sent) suspect(v version) bool { return !s.pos.isZero() && !s.pos.less(v) }

// Wrote records a successful write for owner: EnsureReady refuses owner until
// the store of resource has reached rv. Records of another ownerUID are replaced.
// An RV that cannot be compared is counted and changes nothing. If rv is Suspect,
// the server's RVs may have gone backward, and owner waits for a fence. Do not call it
// for a dry run. (KEP-5647, "Staleness Mitigation in Controllers".)
func (c *Controller) Wrote(name types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string, sent Sent) {
	t := c.t
	s := c.sources[resource]
	v, comparable := parseVersion(rv)
	if s != nil {
		s.poll()
	}
	hash, now := c.table.hash(name), t.opts.clock.Now()

	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s == nil:
		t.opts.Metrics.Untracked(c.name, resource)
		return
	case !comparable:
		t.opts.Metrics.Incomparable(resource, originWrite)
		return
	}
	o := c.table.get(hash, name)
	if o != nil && o.uid != ownerUID {
		c.replace(o, ownerUID)
	}
	s.settleLocked()
	suspect := false
	if s.reached(v) {
		// The event came before the response: the usual case on a fast watch. But an RV
		// that the store had before the request cannot be a new one.
		suspect = t.opts.Fencer != nil && sent.suspect(v)
		if !suspect {
			t.opts.Metrics.WriteToCache(c.name, resource, 0)
			if o != nil {
				t.finish(o, outcomeSeen, now)
			}
			return
		}
	}
	if o == nil {
		o = c.add(hash, name, ownerUID)
	}
	r := o.ensure(s)
	r.fseq = t.fenceSeq
	switch {
	case suspect:
		r.flags |= flagSuspect
		if r.idx >= 0 {
			r.flags |= flagLower
		} else if r.awaited().less(v) {
			r.setAwaited(v)
		}
		s.enterSide(r)
		s.askFence()
	case r.idx < 0 || r.awaited().less(v):
		if r.idx >= 0 && r.flags&flagWrite != 0 {
			r.flags |= flagLower // A rewind to between the two leaves this one.
		}
		r.flags |= flagWrite
		r.at = int64(now.Sub(t.start))
		s.enter(r, v)
	case v.less(r.awaited()):
		// Concurrent writes are recorded in any order, so this is no sign of a rewind.
		r.flags |= flagLower
	}
	s.setGate()
}

// Deleted records that an object of resource was deleted for owner: EnsureReady
// refuses owner until the store no longer holds uid alive under key (it is
// absent, has another UID, or has a deletionTimestamp) and has passed the writes
// recorded for that resource. An empty uid is ignored.
func (c *Controller) Deleted(name types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, key types.NamespacedName, uid types.UID) {
	t := c.t
	if uid == "" {
		return
	}
	hash := c.table.hash(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := c.sources[resource]
	if s == nil {
		t.opts.Metrics.Untracked(c.name, resource)
		return
	}
	o := c.table.get(hash, name)
	if o != nil && o.uid != ownerUID {
		c.replace(o, ownerUID)
	}
	if o == nil {
		o = c.add(hash, name, ownerUID)
	}
	r := o.ensure(s)
	for i := range r.ext().deletes {
		if r.extra.deletes[i].uid == uid {
			return
		}
	}
	r.extra.deletes = append(r.extra.deletes, pendingDelete{key: key, uid: uid, fseq: t.fenceSeq})
	s.enterSide(r)
	if o.park != nil {
		t.park(o, s, t.opts.clock.Now())
	}
}

// Clear drops the records of owner if the UID matches or is empty. It wakes a parked owner,
// so that the caller need not know that it was parked.
func (c *Controller) Clear(name types.NamespacedName, ownerUID types.UID) {
	if !c.table.mayHold(name) {
		return
	}
	hash := c.table.hash(name)
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	o := c.table.get(hash, name)
	if o == nil || (ownerUID != "" && o.uid != ownerUID) {
		return
	}
	o.each(o.release)
	c.t.finish(o, outcomeCleared, c.t.opts.clock.Now())
}

func (c *Controller) add(hash uint32, name types.NamespacedName, uid types.UID) *owner {
	o := &owner{c: c, name: name, uid: uid, first: record{idx: -1}}
	c.table.put(hash, o)
	c.busy.Add(1)
	return o
}

func (c *Controller) forget(o *owner) {
	c.table.remove(o)
	c.busy.Add(-1)
}

// replace drops the records of an earlier owner of the same name. A wait goes on.
func (c *Controller) replace(o *owner, uid types.UID) {
	o.each(o.release)
	o.uid = uid
}

// EnsureReady returns nil if every cache that the controller reads shows all that
// was written and deleted for owner. Otherwise it parks owner, in one step with
// the check, and returns a *NotReadyError.
func (c *Controller) EnsureReady(name types.NamespacedName) error {
	if c.busy.Load() == 0 {
		return nil
	}
	if c.blocked.Load() == 0 && !c.table.mayHold(name) {
		return nil
	}
	return c.ensureReady(c.table.hash(name), name)
}

func (c *Controller) ensureReady(hash uint32, name types.NamespacedName) error {
	for _, s := range c.plain {
		s.poll()
	}
	t := c.t
	now := t.opts.clock.Now()

	t.mu.Lock()
	defer t.mu.Unlock()
	o := c.table.get(hash, name)
	if o == nil && c.blocked.Load() == 0 {
		return nil
	}
	if o != nil {
		c.resolve(o, now)
		if o.hasDeletes() {
			// A look-up waits for the store's lock, so it is made without ours.
			checks := o.deleteChecks(nil)
			t.mu.Unlock()
			lookUp(checks)
			t.mu.Lock()
			t.applyDeletes(checks, now)
			if o = c.table.get(hash, name); o != nil {
				c.resolve(o, now)
			}
		}
	}
	if c.blocked.Load() > 0 {
		for _, s := range c.list {
			s.settleLocked()
			d := c.holdOn(s)
			recorded := o != nil && o.find(s) != nil
			if d == nil && (s.usable() || recorded) {
				continue
			}
			if !t.running {
				return c.notReady(nil, name, s, now)
			}
			if o == nil {
				o = c.add(hash, name, "")
			}
			if !s.usable() && !recorded {
				r := o.ensure(s)
				r.fseq = t.fenceSeq
				s.enter(r, version{})
				s.setGate()
				t.kickSafety()
			}
			if d != nil {
				o.awaitProof(d, now)
			}
		}
	}
	if o == nil {
		return nil
	}
	if o.n == 0 {
		t.unpark(o, outcomeSeen, now)
		c.forget(o)
		return nil
	}
	src := o.waitsFor()
	if t.running {
		t.park(o, src, now)
	}
	return c.notReady(o, name, src, now)
}

// resolve releases the records that the sources have passed, without waiting for the waker.
func (c *Controller) resolve(o *owner, now time.Time) {
	o.each(func(r *record) {
		s := r.src
		s.settleLocked()
		if r.idx >= 0 && s.reached(r.awaited()) {
			s.heap.remove(r)
			s.setGate()
			c.t.pass(r, now)
		}
		if r.src != nil && r.resolved() && s.usable() {
			o.release(r)
		}
	})
}

func (c *Controller) notReady(o *owner, name types.NamespacedName, s *Source, now time.Time) *NotReadyError {
	e := &NotReadyError{Wait: c.wait(o, name, s)}
	if o != nil && o.park != nil {
		e.parked, e.waited = true, now.Sub(e.Since)
	}
	return e
}

// kind is what r waits for at s; without r, what any owner waits for.
func (s *Source) kind(r *record) why {
	switch {
	case s.outdated && !s.trustedAnyway:
		return whyRelist
	case s.doubted && !s.trustedAnyway:
		return whyDoubt
	case !s.floor.isZero():
		return whyRegressed
	case r == nil:
		return whyUnproven
	case r.idx >= 0:
		return whyWrite
	case r.flags&flagSuspect != 0:
		return whySuspect
	case r.hasDeletes():
		return whyDelete
	case r.flags&flagUnproven != 0:
		return whyUnproven
	}
	return whyWrite
}

// why is kind with what is awaited.
func (s *Source) why(r *record) (why why, awaited string, deleting types.UID) {
	switch why = s.kind(r); why {
	case whyRegressed:
		v := s.floor
		if r != nil && r.idx >= 0 && v.less(r.awaited()) {
			v = r.awaited()
		}
		awaited = v.String()
	case whyWrite, whySuspect:
		awaited = r.awaited().String()
	case whyDelete:
		deleting = r.extra.deletes[0].uid
	}
	return why, awaited, deleting
}
