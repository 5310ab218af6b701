// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Run wakes parked owners and guards them with the safety timer until ctx is
// done, and returns when its goroutines have ended. The tracker parks owners only while
// it runs; at the end it wakes those that are still parked, so that none is lost.
// It must not be called twice at a time.
func (t *Tracker) Run(ctx context.Context) {
	t.mu.Lock()
	t.logger = klog.FromContext(ctx).WithName("rvtracker")
	t.running = true
	t.mu.Unlock()

	var wg sync.WaitGroup
	wg.Go(func() { t.runWaker(ctx) })
	wg.Go(func() { t.runSafety(ctx) })
	wg.Go(func() { t.runNotes(ctx) })
	wg.Wait()
	t.stop()
}

func (t *Tracker) stop() {
	now := t.opts.clock.Now()
	t.mu.Lock()
	t.running = false
	for _, c := range t.controllers {
		c.table.each(func(o *owner) {
			if t.unpark(o, outcomeCleared, now) {
				t.wake(o)
			}
		})
	}
	for _, s := range t.sources {
		for i := len(s.heap) - 1; i >= 0; i-- {
			if r := s.heap[i].rec; r.owner == nil {
				s.heap.remove(r)
				t.call(r.extra.fn, errNotRunning)
				i = len(s.heap)
			}
		}
		s.setGate()
	}
	t.mu.Unlock()
	t.deliver()
}

func (t *Tracker) runWaker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wakeCh:
			t.wakePass()
		}
	}
}

// drainLimit bounds how many records are handled before the lock is given up (some 100 µs).
const drainLimit = 4096

// wakePass handles every line that passed its gate, then wakes the owners that it freed.
func (t *Tracker) wakePass() {
	now := t.opts.clock.Now()
	var checks []deleteCheck
	t.mu.Lock()
	t.deferring = true
	for _, s := range t.sources {
		if !s.dirty.Swap(false) {
			continue
		}
		s.settleLocked()
		t.drain(&s.line, now)
		for _, r := range s.side {
			if s.sweep || r.owner.park != nil {
				checks = r.deleteChecks(checks)
			}
		}
		s.sweep = false
	}
	t.deferring = false
	for _, c := range t.controllers {
		c.countParked()
	}
	t.mu.Unlock()
	t.deliver()
	t.countObserved()

	if len(checks) == 0 {
		return
	}
	lookUp(checks)
	t.mu.Lock()
	t.applyDeletes(checks, now)
	t.mu.Unlock()
	t.deliver()
}

func (t *Tracker) drain(l *line, now time.Time) {
	if l.usable() {
		t.settleReached(l, l.pos(), now)
	}
	l.setGate()
}

func (t *Tracker) settleReached(l *line, pos version, now time.Time) {
	t.batch = l.heap.takeReached(pos, drainLimit, t.batch[:0])
	for i, r := range t.batch {
		t.seen(r, now)
		t.batch[i] = nil
	}
	t.batch = t.batch[:0]
}

// countObserved gives Metrics what the wake pass has left. Only the waker touches observed.
func (t *Tracker) countObserved() {
	for _, o := range t.observed {
		o.count(t.opts.Metrics)
	}
	clear(t.observed)
	if t.observed = t.observed[:0]; cap(t.observed) > 2*drainLimit {
		t.observed = nil
	}
}

// deliver makes the pending calls without the lock.
func (t *Tracker) deliver() {
	t.mu.Lock()
	ready, calls := t.ready, t.calls
	t.ready, t.calls = t.spare[:0], nil
	t.spare = nil
	t.mu.Unlock()
	for _, c := range calls {
		c.fn(c.err)
	}
	for _, o := range ready {
		o.c.wake(o.name)
	}
	clear(ready)
	if cap(ready) > drainLimit {
		return
	}
	t.mu.Lock()
	t.spare = ready
	t.mu.Unlock()
}
