// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"fmt"
)

// errNotRunning is returned to a waiter when the tracker is not running.
var errNotRunning = errors.New("tracker is not running")

// Wait returns nil once the store has reached rv. Otherwise the error wraps
// ctx's, errRewound, ErrUnprovable (rv cannot be compared), errUnregistered or errNotRunning.
func (s *Source) Wait(ctx context.Context, rv string) error {
	s.poll()
	t := s.t
	v, ok := parseVersion(rv)
	if !ok {
		return fmt.Errorf("waiting for %s at resource version %q: %w", s.resource, rv, ErrUnprovable)
	}
	done := make(chan error, 1)
	r := &record{idx: -1, extra: &extra{line: &s.line, fn: func(err error) { done <- err }}}

	t.mu.Lock()
	s.settleLocked()
	if s.reached(v) {
		t.mu.Unlock()
		return nil
	}
	if s.unregistered {
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, errUnregistered)
	}
	if !t.running {
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, errNotRunning)
	}
	r.fseq = t.fenceSeq
	r.setAwaited(v)
	s.heap.push(r)
	s.setGate()
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
			s.heap.remove(r)
			s.setGate()
		}
		t.mu.Unlock()
		return fmt.Errorf("waiting for %s at resource version %s: %w", s.resource, rv, context.Cause(ctx))
	}
}
