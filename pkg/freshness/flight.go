// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lane holds the one piece of work of its kind that is in flight for a resource.
// Guarded by the resource's mutex.
type lane[T any] struct{ current *flight[T] }

// flight is work that all callers share whose question its answer covers.
type flight[T any] struct {
	mu   *sync.Mutex
	at   time.Time // zero until begun; guarded by mu
	done chan struct{}
	val  T // set before done is closed
}

// begin notes the time for which the answer will be good. Callers that joined before asked
// for an earlier one.
func (f *flight[T]) begin(at time.Time) {
	f.mu.Lock()
	f.at = at
	f.mu.Unlock()
}

// share returns the answer of a flight that covers asOf, starting one if need be. If
// the one in flight has begun too early, it waits for the next, which all later
// callers share. It calls known first, with the resource's mutex held, and after each lookAgain, because the answer may have
// come since the caller looked. An error means that the caller's context has ended, or
// errClosed.
func share[T any](ctx context.Context, r *resource, l *lane[T], asOf time.Time, known func() (T, bool), work func(ctx context.Context, f *flight[T]) T) (T, error) {
	for {
		r.mu.Lock()
		if val, ok := known(); ok {
			r.mu.Unlock()
			return val, nil
		}
		f := l.current
		if f == nil {
			f = &flight[T]{mu: &r.mu, done: make(chan struct{})}
			started := r.p.background(ctx, func(ctx context.Context) {
				f.val = work(ctx, f)
				r.mu.Lock()
				l.current = nil
				r.mu.Unlock()
				close(f.done)
			})
			if !started {
				r.mu.Unlock()
				var zero T
				return zero, errClosed
			}
			l.current = f
		}
		covers := f.at.IsZero() || !asOf.After(f.at)
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-f.done:
			if covers {
				return f.val, nil
			}
		case <-changed:
		case <-ctx.Done():
			var zero T
			return zero, fmt.Errorf("waiting for %s: %w", r.gvr.GroupResource(), context.Cause(ctx))
		}
	}
}

// awaited reports whether a caller waits for a proof.
func (r *resource) awaited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed != nil && r.view != nil
}

// lookAgain has the callers that wait for a flight check whether they still need it.
func (r *resource) lookAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
