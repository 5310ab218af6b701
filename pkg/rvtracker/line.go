// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "sync/atomic"

// noGate lets every RV pass that fits 64 bits; longer ones take the slow path.
const noGate = bigLo

// line is a position in a resource's RVs that moves with events, that of an informer's
// store, and the records that wait for it.
//
// No wake is lost because both sides write before they read: an event stores cur
// and then loads gate; a waiter stores gate and then loads cur (setGate).
type line struct {
	t *Tracker
	// cur is the low word of the RV reached, 0 before the first.
	cur atomic.Uint64
	// gate is the lowest low word at which an event has to signal the waker.
	gate atomic.Uint64
	// dirty is set for the waker when the gate was passed.
	dirty atomic.Bool

	// The rest is guarded by Tracker.mu.
	big  string // the RV reached when it does not fit cur
	heap recordHeap
	// floor is the highest RV reached before the store went back; until it is
	// reached again the cache is older than what was already acted on.
	floor version
	// outdated: the server's RVs went backward to below outdatedAt, which the line still shows.
	outdated   bool
	outdatedAt version
	// doubted, of a store: another one shows that the server's RVs went backward.
	doubted bool
	// reportsLists, of a store: it reports lists (beginReplace), and only a list ends being outdated or doubted.
	reportsLists bool
	// trustedAnyway: controllers use it though it is outdated or doubted, because owners have waited for long enough.
	trustedAnyway bool
	// replaced: a list has replaced the content since the line was outdated or doubted.
	replaced bool
	// force counts parked records that any event may resolve (deletes).
	force int
}

func (l *line) init(t *Tracker) {
	l.t = t
	l.gate.Store(noGate)
}

func (l *line) pos() version {
	lo := l.cur.Load()
	if lo == bigLo {
		return version{lo: lo, big: l.big}
	}
	return version{lo: lo}
}

// usable says that the line's position can be compared with awaited RVs.
func (l *line) usable() bool {
	return (!l.outdated && !l.doubted || l.trustedAnyway) && l.floor.isZero()
}

func (l *line) reached(v version) bool { return l.usable() && !l.pos().less(v) }

// touch asks the waker to look at the line. It never blocks.
func (l *line) touch() {
	l.dirty.Store(true)
	l.t.kick()
}

// setGate must follow every change of heap, floor, outdated, doubted or force.
func (l *line) setGate() {
	g := uint64(noGate)
	switch {
	case l.outdated || l.doubted || l.force > 0:
		g = 0
	case !l.floor.isZero():
		g = l.floor.lo
	case len(l.heap) > 0:
		g = l.heap[0].lo
	}
	l.gate.Store(g)

	pos := l.pos()
	switch {
	case l.outdated && !l.trustedAnyway:
		if l.renewed(l.outdatedAt) {
			l.touch()
		}
	case l.doubted && !l.trustedAnyway: // The fence that may end it touches the line.
	case !l.floor.isZero():
		if !pos.less(l.floor) {
			l.touch()
		}
	case len(l.heap) > 0:
		if !pos.less(l.heap[0].rec.awaited()) {
			l.touch()
		}
	}
}

// outdate makes the line unusable until a list replaces its content: it shows RVs of an older epoch.
func (l *line) outdate() {
	l.outdated, l.outdatedAt, l.floor = true, l.pos(), version{}
	l.replaced, l.trustedAnyway = false, false
}

// renewed says that the line shows neither what it showed at that RV nor what followed on it. A store may still
// receive events from before a rewind, which were queued; but no event goes back.
func (l *line) renewed(at version) bool {
	moved := l.pos().compare(at)
	return l.replaced || moved < 0 || moved > 0 && !l.reportsLists
}

// settle ends what made the line unusable if its position allows that.
func (l *line) settle() (changed bool) {
	pos := l.pos()
	if l.outdated && l.renewed(l.outdatedAt) {
		l.outdated, l.outdatedAt, l.replaced, l.trustedAnyway = false, version{}, false, false
		changed = true
	}
	if !l.floor.isZero() && !pos.less(l.floor) {
		l.floor = version{}
		changed = true
	}
	return changed
}

// set is the slow path of an event: it takes an RV of any length.
func (l *line) set(v version) {
	l.big = v.big
	l.cur.Store(v.lo)
}
