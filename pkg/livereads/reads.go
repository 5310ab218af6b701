// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Timeout bounds a live read, and again the wait for the budget before it.
	Timeout = 10 * time.Second
	// Age is how long a live read may stand for the server's state, when many objects ask for
	// it one after another.
	Age = 5 * time.Second
)

// Reads are the live reads of one resource by one controller, by key. A read answers everybody who
// asks for a time before it was sent, with its error too, so that its price does not grow with the
// number of those who ask.
type Reads[T any] struct {
	// Resource that is read.
	Resource schema.GroupResource

	ctx        context.Context
	controller string
	budget     *Budget
	read       func(ctx context.Context, key string) (T, error)

	mu    sync.Mutex
	known map[string]*liveRead[T]
}

// liveRead is one read. At is zero until it is sent, and guarded by the mutex; the rest is set before
// done is closed.
type liveRead[T any] struct {
	at   time.Time
	done chan struct{}
	val  T
	err  error
}

// NewReads returns the reads that read makes, one by one, within the budget. They go on until ctx ends.
func NewReads[T any](ctx context.Context, controller string, resource schema.GroupResource, budget *Budget, read func(ctx context.Context, key string) (T, error)) *Reads[T] {
	return &Reads[T]{ctx: ctx, controller: controller, Resource: resource, budget: budget, read: read, known: map[string]*liveRead[T]{}}
}

// Recall returns what a read at asOf or later has brought.
func (l *Reads[T]) Recall(key string, asOf time.Time) (val T, at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.known[key]
	if r == nil || r.at.IsZero() || r.at.Before(asOf) {
		return val, at, false
	}
	if !r.ended() {
		return val, at, false
	}
	return r.val, r.at, r.err == nil
}

// Get returns what the server had at asOf or later, and when.
func (l *Reads[T]) Get(ctx context.Context, key string, asOf time.Time) (val T, at time.Time, err error) {
	for {
		l.mu.Lock()
		r := l.known[key]
		if r == nil || !r.at.IsZero() && r.at.Before(asOf) && r.ended() {
			r = l.start(key)
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return val, at, fmt.Errorf("reading %s %s: %w", l.Resource, key, context.Cause(ctx))
		case <-r.done:
			if !r.at.Before(asOf) {
				return r.val, r.at, r.err
			}
		}
	}
}

// Wanted is how many reads are under way or wait for the budget.
func (l *Reads[T]) Wanted() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.known {
		if !r.ended() {
			n++
		}
	}
	return n
}

func (r *liveRead[T]) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// start begins a read, for all who wait for it. The mutex is held.
func (l *Reads[T]) start(key string) *liveRead[T] {
	for k, r := range l.known {
		if r.ended() && time.Since(r.at) > Age {
			delete(l.known, k)
		}
	}
	r := &liveRead[T]{done: make(chan struct{})}
	l.known[key] = r
	go func() {
		defer close(r.done)
		r.err = l.budget.ReadWithin(l.ctx, l.controller, l.Resource, Timeout, Timeout, func(ctx context.Context) (err error) {
			l.sent(r)
			r.val, err = l.read(ctx, key)
			return err
		})
		l.sent(r) // if the budget was spent, those who asked until now share that
	}()
	return r
}

func (l *Reads[T]) sent(r *liveRead[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.at.IsZero() {
		r.at = time.Now()
	}
}
