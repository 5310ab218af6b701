// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Tracker is the shared tracker of a process. Make it with New, run it with Run.
// All methods are safe for concurrent use.
type Tracker struct {
	opts     Options
	start    time.Time
	wakeCh   chan struct{}
	safetyCh chan struct{}
	noteCh   chan struct{}

	// mu guards everything slow: records, parking, epochs. Informers take it only
	// when their store goes back or an RV has more than 19 digits; reconcilers only
	// for an owner that has something pending, or to record a write. One lock keeps
	// an owner's check over several resources atomic with its parking.
	mu          sync.Mutex
	logger      klog.Logger
	running     bool
	fenceSeq    uint32
	sources     []*Source
	byStore     map[Store]*Source
	hooks       map[Store]*hook
	controllers []*Controller
	ready       []*owner // to be woken, on the waker's goroutine
	spare       []*owner // ready's memory, reused
	calls       []call   // to be made before that
	deferring   bool     // during a wake pass: Metrics gets observations after it
	observed    []observation
	batch       []*record
	relists     uint64 // of all sources, without first lists
	spreads     pace
	spreadDue   bool // it was too early for one
	coresAsked  time.Time
	// relistLimits are for how long owners wait at most for the proof that a cache is as new as a relist of another.
	relistLimits Limits
	notes        []func() // to be called on the goroutine for notes
	notesLost    int
}

// call is one to make without the lock, on the waker's goroutine.
type call struct {
	fn  func(error)
	err error
}

// New returns a tracker that does not run yet.
func New(opts Options) *Tracker {
	opts = opts.withDefaults()
	return &Tracker{
		opts: opts, relistLimits: OwnerLimits,
		start:    opts.clock.Now(),
		wakeCh:   make(chan struct{}, 1),
		safetyCh: make(chan struct{}, 1),
		noteCh:   make(chan struct{}, 1),
		byStore:  map[Store]*Source{},
		hooks:    map[Store]*hook{},
	}
}

// Register returns the source of a store, making it at the first call for that
// store: an informer is tracked once, however many controllers share it. The
// resource of the first call stands.
func (t *Tracker) Register(resource schema.GroupResource, store Store) *Source {
	t.mu.Lock()
	s := t.byStore[store]
	if s != nil {
		t.mu.Unlock()
		return s
	}
	s = &Source{resource: resource, store: store, proofPace: rate.NewLimiter(rate.Every(proofSpacing), proofBurst)}
	observed, hooked := store.(observable)
	s.hooked, s.reportsLists = hooked, hooked
	s.init(t)
	t.byStore[store] = s
	t.sources = append(t.sources, s)
	h, known := t.hooks[store]
	if hooked {
		if !known {
			h = &hook{}
			t.hooks[store] = h
		}
		h.source.Store(s)
	}
	t.mu.Unlock()

	if !hooked {
		s.poll()
		return s
	}
	if !known {
		observed.AddResourceVersionObserver(h.observe)
		observed.AddReplaceObserver(h.replacing)
	}
	// The store may have synced long ago. An event that came since the line above
	// knows better than this read.
	if lo, ok := parseFast(store.LastStoreSyncResourceVersion()); ok {
		s.cur.CompareAndSwap(0, lo)
	}
	return s
}

// hook is what a store of our client-go calls. Its observers cannot be removed, and its informer never ends, even if
// its resource is not served any more. So each store has one hook, for all sources that it ever gets.
type hook struct{ source atomic.Pointer[Source] }

func (h *hook) observe(rv string) {
	if s := h.source.Load(); s != nil {
		s.observe(rv)
	}
}

func (h *hook) replacing(string) {
	if s := h.source.Load(); s != nil {
		s.beginReplace()
	}
}

func (t *Tracker) kick() {
	select {
	case t.wakeCh <- struct{}{}:
	default:
	}
}

func (t *Tracker) kickSafety() {
	select {
	case t.safetyCh <- struct{}{}:
	default:
	}
}

// seen handles a record that its line has passed.
func (t *Tracker) seen(r *record, now time.Time) {
	if r.owner == nil {
		t.call(r.extra.fn, nil)
		return
	}
	t.pass(r, now)
	if r.resolved() {
		o := r.owner
		o.release(r)
		t.finish(o, outcomeSeen, now)
	}
}

// pass notes that the awaited RV was reached.
func (t *Tracker) pass(r *record, now time.Time) {
	if r.flags&flagWrite != 0 {
		latency := now.Sub(t.start) - time.Duration(r.at)
		t.observe(observation{c: r.owner.c, src: r.src, took: max(0, latency)})
	}
	r.flags &^= flagWrite | flagLower
}

// finish removes an owner without records, and wakes it if it was parked.
func (t *Tracker) finish(o *owner, outcome string, now time.Time) {
	if o.n > 0 {
		return
	}
	if outcome == outcomeSeen && o.park != nil && o.awaitProofs(now) {
		o.recount() // It would only be refused again.
		return
	}
	if t.unpark(o, outcome, now) {
		t.wake(o)
	}
	o.c.forget(o)
}

// observation is what Metrics gets for a write that the cache has seen, or for a wait that ended so.
type observation struct {
	c    *Controller
	src  *Source
	took time.Duration
	wait bool
}

func (o observation) count(m Metrics) {
	if o.wait {
		m.WaitEnded(o.c.name, o.took, outcomeSeen)
	} else {
		m.WriteToCache(o.c.name, o.src.resource, o.took)
	}
}

// observe gives Metrics an observation, in a wake pass only after it: finding a series takes longer than all the rest of a wake.
func (t *Tracker) observe(o observation) {
	if t.deferring {
		t.observed = append(t.observed, o)
		return
	}
	o.count(t.opts.Metrics)
}

// wake has the waker call the owner's controller. Only the first owner kicks the waker, which takes all that are
// ready then.
func (t *Tracker) wake(o *owner) {
	if len(t.ready) == 0 {
		t.kick()
	}
	t.ready = append(t.ready, o)
}

func (t *Tracker) call(fn func(error), err error) {
	t.calls = append(t.calls, call{fn, err})
	t.kick()
}

func (t *Tracker) park(o *owner, s *Source, now time.Time) {
	if o.park == nil {
		o.park = &parking{since: now, src: s, reason: s.kind(o.find(s)).reason()}
		o.c.parked++
		o.c.parkedFor[o.park.reason]++
		t.opts.Metrics.WaitStarted(o.c.name, s.resource)
		o.c.countParked()
	}
	o.each(func(r *record) {
		if r.hasDeletes() && r.flags&flagForced == 0 {
			r.flags |= flagForced
			r.src.force++
			r.src.setGate()
			// The object may have gone since it was looked up.
			r.src.touch()
		}
	})
}

// unpark reports whether o was parked.
func (t *Tracker) unpark(o *owner, outcome string, now time.Time) bool {
	if o.park == nil {
		return false
	}
	waited := now.Sub(o.park.since)
	if outcome == outcomeSeen {
		t.observe(observation{c: o.c, src: o.park.src, took: waited, wait: true})
	} else {
		t.opts.Metrics.WaitEnded(o.c.name, waited, outcome)
	}
	o.c.parkedFor[o.park.reason]--
	o.park = nil
	o.c.parked--
	if !t.deferring {
		o.c.countParked()
	}
	o.each(func(r *record) {
		if r.flags&flagForced != 0 {
			r.flags &^= flagForced
			r.src.force--
			r.src.setGate()
		}
	})
	return true
}
