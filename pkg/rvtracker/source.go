// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Store is what the tracker needs of an informer's store; client-go's
// cache.Store and cache.Indexer implement it. The dynamic type must be comparable.
type Store interface {
	// LastStoreSyncResourceVersion is the RV that the store has reached.
	LastStoreSyncResourceVersion() string
	// GetByKey reads one object, by "namespace/name" or "name".
	GetByKey(key string) (item any, exists bool, err error)
}

// observable is what a store of our patched client-go implements besides. fn is
// called in order after each change was applied, outside the store's lock.
type observable interface {
	AddResourceVersionObserver(fn func(resourceVersion string))
	// fn is called before a list replaces the content, without the store's lock.
	AddReplaceObserver(fn func(resourceVersion string))
}

// Source is the tracked state of one informer's store. All methods are safe for
// concurrent use, except that calls of Observe must come in the store's order.
type Source struct {
	line
	resource schema.GroupResource
	store    Store
	hooked   bool
	pollMu   sync.Mutex
	// replacing: a list is about to replace the content, and the store was outdated or doubted before.
	replacing atomic.Bool

	// Guarded by Tracker.mu.
	epoch   uint64
	blocked bool // as users have counted it
	users   []*Controller
	side    []*record
	records int
	// live is the highest RV of the server that fences, writes and bookmarks have shown in this epoch.
	live version

	needFence    bool
	fencing      bool
	blockedSince time.Time
	lastFence    time.Time // last attempt
	lastAnswer   time.Time // last answer that could be compared
	lastSweep    time.Time
	heldSince    time.Time // since when it has not been usable; if it may show the time before a rewind, since it may
	heldRewound  bool      // it may show the time before a rewind
	fenceFailed  bool
	unprovable   bool
	sweep        bool
	listed       bool // a list has filled the store
	proving      bool // a proof of the store is under way, or may not begin yet
	proofPace    *rate.Limiter
	proofErr     error     // of the last proof
	shown        bool      // to be stale, by a proof since the last one that succeeded
	givenUp      bool      // no proof has come within relistLimits, nor since
	proofAfter   time.Time // when it is given up: not before this
	doubt        doubt
	// wentBack: the store has gone back, at backAt, when backSeq fences had begun, and none begun since has proved no rewind.
	wentBack bool
	backSeq  uint32
	backAt   time.Time
	backs    uint64 // how often it has
	// backAfter is when to ask for the next proof that the store has what the server has, though it went back.
	backAfter time.Time

	relists   pace      // of this resource alone, after rewinds
	relistDue time.Time // when to ask for a list again
	listSince time.Time // since when a list has to have begun to show no time before the rewind
	// unregistered: it is not among the tracker's sources.
	unregistered bool
}

// observe notes that the store has applied everything up to rv. Register adds it as an observer to stores of
// our client-go; other stores are polled. It runs on the informer's goroutine: it never
// blocks on a waiter and does not allocate for RVs of up to 19 digits.
func (s *Source) observe(rv string) {
	lo, ok := parseFast(rv)
	if !ok {
		s.observeSlow(rv)
		return
	}
	if lo < s.cur.Load() {
		s.t.mu.Lock()
		s.move(version{lo: lo})
		s.t.mu.Unlock()
		s.touch()
		return
	}
	s.cur.Store(lo)
	if lo >= s.gate.Load() {
		if s.replacing.Load() {
			s.t.mu.Lock()
			s.showReplaced()
			s.settleLocked()
			s.setGate()
			s.t.mu.Unlock()
		}
		s.touch()
	}
}

// showReplaced notes that the store shows the list that beginReplace has announced.
func (s *Source) showReplaced() {
	if s.replacing.Swap(false) {
		s.replaced = s.outdated || s.doubted
	}
}

func (s *Source) observeSlow(rv string) {
	v, ok := parseVersion(rv)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if !ok {
		if s.unregistered {
			return
		}
		// The last comparable position stands: it neither erases nor satisfies a record.
		s.t.opts.Metrics.Incomparable(s.resource, originStore)
		return
	}
	s.move(v)
	s.touch()
}

// move sets the position under the lock, so that going back and becoming unusable
// are one step for everybody else.
func (s *Source) move(v version) {
	if s.unregistered {
		return
	}
	was := s.pos()
	back := v.less(was)
	if back && s.usable() {
		// It has passed these records, even if the waker has not handled them yet.
		s.t.settleReached(&s.line, was, s.t.opts.clock.Now())
	}
	s.set(v)
	s.showReplaced()
	if back {
		s.regress(was)
	}
}

// regress: the store went back from was. Either the server's RVs went backward, or
// an apiserver that lags has answered a relist. So the tracker drops nothing: every owner
// that reads this store waits until it is back where it was, or is proven to have what the server has, or as heldTooLong says,
// and the tracker takes a fence at once to find out.
func (s *Source) regress(was version) {
	s.t.opts.Metrics.Regression(s.resource)
	if s.outdated {
		// It is the relist that owners have waited for after a rewind.
		s.settleLocked()
		s.setGate()
		return
	}
	if s.floor.less(was) {
		s.floor = was
	}
	s.backs++
	s.wentBack, s.backSeq, s.backAt = true, s.t.fenceSeq, s.t.opts.clock.Now()
	s.settleLocked()
	s.setGate()
	s.askFence()
	s.t.info("A cache went back to an older resource version", "resource", s.resource.String(),
		"from", was.String(), "to", s.pos().String())
}

// endRegression has owners wait no longer until the store is back where it was.
func (s *Source) endRegression() {
	s.floor = version{}
	s.settleLocked()
	s.setGate()
	s.touch()
}

// settleLocked keeps the users' counts of unusable sources correct.
func (s *Source) settleLocked() {
	was, outdatedAt := s.outdated, s.outdatedAt
	s.settle()
	if was && !s.outdated && !s.pos().less(outdatedAt) {
		s.relistedAhead(outdatedAt)
	}
	s.trust()
	blocked := !s.usable()
	rewound := blocked && (s.outdated || s.doubted)
	if !blocked {
		s.heldSince = time.Time{}
	} else if s.heldSince.IsZero() || rewound && !s.heldRewound {
		s.heldSince = s.t.opts.clock.Now()
	}
	s.heldRewound = rewound
	if blocked == s.blocked {
		return
	}
	s.blocked = blocked
	delta := int32(1)
	if blocked {
		s.blockedSince = s.t.opts.clock.Now()
	} else {
		delta = -1
	}
	for _, c := range s.users {
		c.blocked.Add(delta)
		c.busy.Add(delta)
	}
}

// relistedAhead: the store was outdated, and shows a list that is not below what it showed. Either the list is of the new epoch, and the
// server has grown past that, or it came before the rewind and was queued. A fence shows which.
func (s *Source) relistedAhead(outdatedAt version) {
	switch {
	case !s.reportsLists:
		s.t.info("A cache went on after a rewind without a relist; changes in between may be missing", "resource", s.resource.String(),
			"from", outdatedAt.String(), "to", s.pos().String())
	case s.t.opts.Fencer != nil:
		s.beDoubted(true)
	}
}

// poll reads the RV of a store that has no observers.
func (s *Source) poll() {
	if s.hooked {
		return
	}
	s.pollMu.Lock()
	defer s.pollMu.Unlock()
	if rv := s.store.LastStoreSyncResourceVersion(); rv != "" {
		s.observe(rv)
	}
}

// enter puts r, which awaits v, in the heap.
func (s *Source) enter(r *record, v version) {
	if r.idx < 0 {
		r.setAwaited(v)
		s.heap.push(r)
	} else {
		r.setAwaited(v)
		s.heap.refresh(r)
	}
}

// leave takes r out of heap and side.
func (s *Source) leave(r *record) {
	if r.idx < 0 && r.extra == nil && r.flags&flagForced == 0 {
		return // It is in neither, as usual once the source has reached it.
	}
	if r.idx >= 0 {
		s.heap.remove(r)
	}
	s.leaveSide(r)
	s.setGate()
}

func (s *Source) enterSide(r *record) {
	if x := r.ext(); x.side == 0 {
		s.side = append(s.side, r)
		x.side = len(s.side)
	}
}

func (s *Source) leaveSide(r *record) {
	if r.flags&flagForced != 0 {
		r.flags &^= flagForced
		s.force--
	}
	if r.extra == nil || r.extra.side == 0 {
		return
	}
	i, last := r.extra.side-1, len(s.side)-1
	s.side[i] = s.side[last]
	s.side[i].extra.side = i + 1
	s.side[last] = nil
	s.side = s.side[:last]
	r.extra.side = 0
}

func (s *Source) askFence() {
	s.needFence = true
	s.t.kickSafety()
}

// Reached says whether the store is at rv or later, and in the epoch of the
// server. It is false, too, for an RV that cannot be compared.
func (s *Source) Reached(rv string) bool {
	v, ok := parseVersion(rv)
	if !ok {
		return false
	}
	s.poll()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.settleLocked()
	return s.reached(v)
}
