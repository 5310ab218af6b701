// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotRunning is returned to a waiter when the tracker is not running.
var ErrNotRunning = errors.New("tracker is not running")

// Delivery is how far one event handler of an informer has been handed events.
// It is never ahead of the store. Event and Bookmark are for the handler's own
// goroutine; the other methods are safe for concurrent use.
type Delivery struct {
	line
	src  *Source
	name string
}

// NewDelivery adds a handler's delivered RV to the source. name shows in Sources.
func (s *Source) NewDelivery(name string) *Delivery {
	d := &Delivery{src: s, name: name}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	d.init(s.t)
	s.deliveries = append(s.deliveries, d)
	return d
}

// Bookmark tells that everything up to rv has been handed to the handler. Plug it
// into ResourceEventHandlerFuncs.BookmarkFunc (KEP-5647).
func (d *Delivery) Bookmark(rv string) { d.Event(rv) }

// Event tells that the event of an object at rv has been handled. For a store
// that does not report by itself it also makes the tracker read the store's RV.
func (d *Delivery) Event(rv string) {
	if !d.src.hooked {
		d.src.poll()
	}
	lo, ok := parseFast(rv)
	if !ok {
		d.slow(rv)
		return
	}
	d.cur.Store(lo)
	if lo >= d.gate.Load() {
		d.touch()
	}
}

func (d *Delivery) slow(rv string) {
	v, ok := parseVersion(rv)
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	if !ok {
		d.t.opts.Metrics.Incomparable(d.src.resource, OriginDelivery)
		return
	}
	d.set(v)
	d.touch()
}

// RV is the last comparable RV delivered, or "".
func (d *Delivery) RV() string {
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	return d.pos().String()
}

// Reached says whether the handler has been handed everything up to rv.
func (d *Delivery) Reached(rv string) bool {
	v, ok := parseVersion(rv)
	if !ok {
		return false
	}
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	d.settle()
	return d.reached(v)
}

// Wait returns nil once the handler has been handed everything up to rv; see
// Source.Wait for errors.
func (d *Delivery) Wait(ctx context.Context, rv string) error {
	return d.t.wait(ctx, d.src, &d.line, rv)
}

// Wait returns nil once the store has reached rv. Otherwise the error wraps
// ctx's, ErrRewound, ErrUnprovable (rv cannot be compared), ErrUnregistered or ErrNotRunning.
func (s *Source) Wait(ctx context.Context, rv string) error {
	s.poll()
	return s.t.wait(ctx, s, &s.line, rv)
}

func (t *Tracker) wait(ctx context.Context, s *Source, l *line, rv string) error {
	v, ok := parseVersion(rv)
	if !ok {
		return fmt.Errorf("waiting for %s at resource version %q: %w", s.resource, rv, ErrUnprovable)
	}
	done := make(chan error, 1)
	r := &record{idx: -1, extra: &extra{line: l, fn: func(err error) { done <- err }}}

	t.mu.Lock()
	if l == &s.line {
		s.settleLocked()
	} else {
		l.settle()
	}
	if l.reached(v) {
		t.mu.Unlock()
		return nil
	}
	if s.unregistered {
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, ErrUnregistered)
	}
	if !t.running {
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, ErrNotRunning)
	}
	r.fseq = t.fenceSeq
	r.setAwaited(v)
	l.heap.push(r)
	l.setGate()
	t.mu.Unlock()

	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, err)
		}
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		if r.idx >= 0 {
			l.heap.remove(r)
			l.setGate()
		}
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, context.Cause(ctx))
	}
}
