// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"sync"
	"time"
)

// rechecks has keys looked at again once what a controller sees of them is known to be as new as a time.
// An eviction that was cancelled on a live read needs it: if the cache misses that the taint was gone
// and came back, which a relist may hide, it has no event that would schedule the eviction again.
type rechecks[K comparable] struct {
	ctx context.Context

	mu   sync.Mutex
	asOf map[K]time.Time
}

func newRechecks[K comparable](ctx context.Context) *rechecks[K] {
	return &rechecks[K]{ctx: ctx, asOf: map[K]time.Time{}}
}

// add has look called for the key once proven says that what it sees is as new as now. There is one
// recheck under way for a key.
func (r *rechecks[K]) add(key K, proven func(ctx context.Context, asOf time.Time) bool, look func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, running := r.asOf[key]
	r.asOf[key] = time.Now()
	if !running {
		go r.run(key, proven, look)
	}
}

func (r *rechecks[K]) run(key K, proven func(ctx context.Context, asOf time.Time) bool, look func()) {
	for delay := minEvictionDelay; r.ctx.Err() == nil; delay = min(2*delay, maxEvictionDelay) {
		r.mu.Lock()
		asOf := r.asOf[key]
		r.mu.Unlock()
		if proven(r.ctx, asOf) {
			r.mu.Lock()
			done := r.asOf[key].Equal(asOf)
			if done {
				delete(r.asOf, key)
			}
			r.mu.Unlock()
			if done {
				look()
				return
			}
			continue
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(delay):
		}
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
