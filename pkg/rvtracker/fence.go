// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"slices"
	"time"
)

// FenceToken stands for a fence between its sending and its answer. It has
// what was known when the fence was sent, because only that is evidence: a
// consistent read cannot return less than an RV that was seen before it began.
type FenceToken struct {
	src   *Source
	seq   uint32
	epoch uint64
	top   version // the highest RV known to have been live in this epoch
}

// finding is what a fence showed.
type finding string

const (
	// findingConsistent: nothing seen before the fence is above it.
	findingConsistent finding = "Consistent"
	// findingRewind: the server's RVs went backward; a new epoch has begun.
	findingRewind finding = "Rewind"
	// findingOutdated: another fence proved a rewind meanwhile, or the store was unregistered; this one proves nothing.
	findingOutdated finding = "Outdated"
	// findingIncomparable: the fence's RV cannot be compared.
	findingIncomparable finding = "Incomparable"
)

// BeginFence must be called before the consistent read of the source's resource
// is sent. A token that is never used costs nothing.
func (s *Source) BeginFence() FenceToken {
	s.poll()
	epoch, outdated := s.shows()
	shown, ok := parseVersion(s.store.LastStoreSyncResourceVersion())
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	tok := s.beginFence()
	if ok && !outdated && epoch == tok.epoch {
		tok.top = maxVersion(tok.top, shown) // The store may be about to report it.
	}
	return tok
}

func (s *Source) beginFence() FenceToken {
	s.settleLocked()
	s.t.fenceSeq++
	return s.token()
}

func (s *Source) token() FenceToken {
	tok := FenceToken{src: s, seq: s.t.fenceSeq, epoch: s.epoch, top: s.live}
	if !s.outdated {
		tok.top = maxVersion(tok.top, maxVersion(s.pos(), s.floor))
	}
	return tok
}

// shows returns the source's epoch, and whether its store still shows an older one.
func (s *Source) shows() (epoch uint64, outdated bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.epoch, s.outdated
}

// ObserveFence takes the answer to a fence, of the tracker or of another caller. An rv below what the
// store had, a controller had written or another fence had returned before this
// one began proves a rewind. Then a new epoch begins: the tracker drops the records that no cache can reach,
// and wakes their owners. If the store still shows the time before the rewind,
// every owner of every controller that reads it waits until it relists. ObserveFence returns the epoch of the answer.
// It returns an error if the answer proves nothing, which wraps ErrUnprovable if the rv cannot be compared.
func (s *Source) ObserveFence(token FenceToken, rv string) (epoch uint64, err error) {
	switch s.observeFence(token, rv) {
	case findingConsistent:
		return token.epoch, nil
	case findingRewind:
		return token.epoch + 1, nil
	case findingIncomparable:
		return 0, fmt.Errorf("fence of %s at resource version %q: %w", s.resource, rv, ErrUnprovable)
	}
	return 0, fmt.Errorf("fence of %s: %w", s.resource, errOutdated)
}

// ObserveWrite takes the answer to a write of the source's resource, made at rv, which should be past all that was known
// when it was sent. It returns the epoch of the answer, or false if the answer proves nothing. An rv that is not
// past what was known is a sign of a rewind, and the tracker takes a fence.
func (s *Source) ObserveWrite(sent Sent, rv string) (epoch uint64, ok bool) {
	v, ok := parseVersion(rv)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	switch {
	case !ok || sent.token.src != s || sent.token.epoch != s.epoch || s.unregistered:
		return 0, false
	case !sent.token.top.less(v):
		s.askFence()
		return 0, false
	}
	s.live = maxVersion(s.live, v)
	return s.epoch, true
}

// ServerAt notes that the server was at rv in an epoch. It returns false if that epoch has ended.
func (s *Source) ServerAt(epoch uint64, rv string) bool {
	v, ok := parseVersion(rv)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if !ok || epoch != s.epoch {
		return false
	}
	s.live = maxVersion(s.live, v)
	return true
}

// Epoch returns the number of rewinds proven so far. The store is trusted unless it may show the time before the last of them, or
// before one that another resource has shown: then it is not trusted until a list replaces its content, even if owners use it
// by then. Read before the store's RV, it says in which epoch that RV is.
func (s *Source) Epoch() (epoch uint64, trusted bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.settleLocked()
	return s.epoch, !s.outdated && !s.doubted
}

func (s *Source) observeFence(token FenceToken, rv string) finding {
	v, ok := parseVersion(rv)
	t := s.t
	now := t.opts.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok {
		if !s.unregistered {
			t.opts.Metrics.Incomparable(s.resource, originFence)
		}
		return findingIncomparable
	}
	if token.src != s || token.epoch != s.epoch || s.unregistered {
		return findingOutdated
	}
	s.lastAnswer = now
	t.drain(&s.line, now)
	if v.less(token.top) || s.anyAbove(token, v) {
		s.rewind(token, v, now)
		return findingRewind
	}
	s.keepEpoch(token, v, now)
	return findingConsistent
}

// anyAbove looks for a write made before the fence with an RV above it.
func (s *Source) anyAbove(token FenceToken, v version) bool {
	for _, e := range s.heap {
		if e.rec.flags&flagWrite != 0 && e.rec.before(token.seq) && v.less(e.rec.awaited()) {
			return true
		}
	}
	return false
}

// keepEpoch: the fence showed no rewind.
func (s *Source) keepEpoch(token FenceToken, v version, now time.Time) {
	t := s.t
	s.live = maxVersion(s.live, v)
	if s.wentBack && int32(token.seq-s.backSeq) > 0 {
		s.wentBack = false // The list was from an apiserver that lagged.
		t.kickSafety()     // For the proof that it has what the server has all the same.
	}
	if s.doubted && int32(token.seq-s.doubt.seq) > 0 {
		s.doubt.fenced = true
		s.settleLocked()
		s.setGate()
		s.touch()
	}
	for _, e := range s.heap {
		r := e.rec
		if r.owner == nil || r.owner.park == nil || r.owner.park.stale || v.less(r.awaited()) {
			continue
		}
		r.owner.park.stale = true
		t.opts.Metrics.Stale(r.owner.c.name, s.resource)
	}
	for _, r := range slices.Clone(s.side) {
		if r.before(token.seq) {
			r.flags &^= flagSuspect
		}
		r.noteFence(token, v)
		t.leftSide(r, outcomeSeen, now)
	}
}

// rewind begins a new epoch. It judges only what was recorded before the fence:
// a write made since may belong to the new epoch and stays awaited.
func (s *Source) rewind(token FenceToken, v version, now time.Time) {
	t := s.t
	s.epoch++
	s.live = v
	t.opts.Metrics.Rewind(s.resource)
	s.needFence = false
	t.info("Resource versions went backward; a new epoch begins", "resource", s.resource.String(),
		"epoch", s.epoch, "live", v.String(), "store", s.pos().String())

	known := s.doubted && !s.doubt.self && !s.doubt.fenced // The doubt was about this rewind.
	relisted, listed := s.relistedBelow(v, known), known && s.replaced
	s.wentBack = false
	s.endDoubt()
	if !known {
		s.listSince = now
		t.rewound(s, now)
	}

	switch {
	case s.outdated:
	case relisted:
		s.floor = version{}
	case listed:
		// The list is past the fence, which was sent before. No other one was asked for.
		s.floor = version{}
		s.relistedAhead(v)
	default:
		s.outdate()
		s.relistDue = now.Add(recheck)
	}
	s.settleLocked()
	s.expel(token, v)

	var freed []*record
	for _, e := range slices.Clone(s.heap) {
		r := e.rec
		switch {
		case r.flags&flagWrite == 0 || !r.before(token.seq) || !v.less(r.awaited()):
		case r.flags&flagLower != 0:
			// A lower write may still exist, or be of the new epoch; the fence is past all of them.
			r.flags &^= flagLower
			s.enter(r, v)
		default:
			r.flags &^= flagWrite
			s.heap.remove(r)
			t.opts.Metrics.Dropped(r.owner.c.name, s.resource, outcomeRewound)
			freed = append(freed, r)
		}
	}
	for _, r := range slices.Clone(s.side) {
		// A deleted object may exist again, or be deleted in the
		// new epoch: a store that has passed the fence shows which.
		r.noteFence(token, v)
		if r.flags&flagSuspect != 0 && r.before(token.seq) {
			// It was a write of the new epoch: now it can be compared.
			r.flags &^= flagSuspect
			if r.idx < 0 {
				r.flags |= flagWrite
				s.enter(r, r.awaited())
			}
		}
		if !r.hasDeletes() && r.flags&flagSuspect == 0 {
			s.leaveSide(r)
			freed = append(freed, r)
		}
	}
	for _, r := range freed {
		if r.src == s && r.resolved() {
			o := r.owner
			o.release(r)
			t.finish(o, outcomeRewound, now)
		}
	}
	s.setGate()
	s.touch()
}

// relistedBelow reports whether the store has gone back with the server, which is at v now: it shows a lower RV than when a fence was
// last consistent, or, in a doubt about this rewind, a list. An RV below v alone proves nothing: the server may have been restored to before that.
func (s *Source) relistedBelow(v version, known bool) bool {
	pos := s.pos()
	followed := s.wentBack
	if known {
		followed = s.renewed(s.doubt.at)
	}
	return pos.isZero() || followed && !v.less(pos)
}

// noteFence notes, for each delete, the first fence of this epoch that began after it.
func (r *record) noteFence(token FenceToken, v version) {
	if !r.hasDeletes() {
		return
	}
	for i := range r.extra.deletes {
		if d := &r.extra.deletes[i]; d.before(token.seq) && (d.fence.isZero() || v.less(d.fence)) {
			d.fence = v
		}
	}
}

// expel releases the waiters without an owner whose RV was of the old epoch.
func (l *line) expel(token FenceToken, v version) {
	for _, e := range slices.Clone(l.heap) {
		if r := e.rec; r.owner == nil && r.before(token.seq) && v.less(r.awaited()) {
			l.heap.remove(r)
			l.t.call(r.extra.fn, errRewound)
		}
	}
}
