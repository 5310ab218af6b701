// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package circuitbreaker

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

const (
	// liveReadTimeout bounds a live read, and again the wait for the budget before it.
	liveReadTimeout = 10 * time.Second
	// liveReadAge is how long a live read may stand for the server's state, when many objects ask for
	// it one after another.
	liveReadAge = 5 * time.Second
)

// Reader makes a live read within a budget; Budget does.
type Reader interface {
	Read(ctx context.Context, controller string, resource schema.GroupResource, read func(context.Context) error) error
}

// readWithin makes a live read that waits for the budget for so long at most, and then has the timeout for itself.
func readWithin(ctx context.Context, budget Reader, controller string, resource schema.GroupResource, wait, timeout time.Duration, read func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return budget.Read(waiting, controller, resource, func(context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return read(ctx)
	})
}

// liveReads are the live reads of one resource by one controller, by key. A read answers everybody who
// asks for a time before it was sent, with its error too, so that its price does not grow with the
// number of those who ask.
type liveReads[T any] struct {
	ctx        context.Context
	controller string
	resource   schema.GroupResource
	reader     Reader
	read       func(ctx context.Context, key string) (T, error)

	mu    sync.Mutex
	known map[string]*liveRead[T]

	forbidden sync.Once
}

// liveRead is one read. At is zero until it is sent, and guarded by the mutex; the rest is set before
// done is closed.
type liveRead[T any] struct {
	at   time.Time
	done chan struct{}
	val  T
	err  error
}

func newLiveReads[T any](ctx context.Context, controller string, resource schema.GroupResource, reader Reader, read func(ctx context.Context, key string) (T, error)) *liveReads[T] {
	return &liveReads[T]{ctx: ctx, controller: controller, resource: resource, reader: reader, read: read, known: map[string]*liveRead[T]{}}
}

// recall returns what a read at asOf or later has brought.
func (l *liveReads[T]) recall(key string, asOf time.Time) (val T, at time.Time, ok bool) {
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

// get returns what the server had at asOf or later, and when.
func (l *liveReads[T]) get(ctx context.Context, key string, asOf time.Time) (val T, at time.Time, err error) {
	for {
		l.mu.Lock()
		r := l.known[key]
		if r == nil || !r.at.IsZero() && r.at.Before(asOf) && r.ended() {
			r = l.start(key)
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return val, at, fmt.Errorf("reading %s %s: %w", l.resource, key, context.Cause(ctx))
		case <-r.done:
			if !r.at.Before(asOf) {
				return r.val, r.at, r.err
			}
		}
	}
}

// wanted is how many reads are under way or wait for the budget.
func (l *liveReads[T]) wanted() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.known {
		if !r.ended() {
			n++
		}
	}
	return n
}

func (r *liveRead[T]) ended() bool { return closed(r.done) }

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// start begins a read, for all who wait for it. The mutex is held.
func (l *liveReads[T]) start(key string) *liveRead[T] {
	for k, r := range l.known {
		if r.ended() && time.Since(r.at) > liveReadAge {
			delete(l.known, k)
		}
	}
	r := &liveRead[T]{done: make(chan struct{})}
	l.known[key] = r
	go func() {
		defer close(r.done)
		r.err = readWithin(l.ctx, l.reader, l.controller, l.resource, liveReadTimeout, liveReadTimeout, func(ctx context.Context) (err error) {
			l.sent(r)
			r.val, err = l.read(ctx, key)
			return err
		})
		l.sent(r) // if the budget was spent, those who asked until now share that
		if apierrors.IsForbidden(r.err) {
			l.forbidden.Do(func() {
				klog.FromContext(l.ctx).Error(r.err, "A controller may not read what its cache cannot be proven to have, so its evictions wait: apply build/manifests/rbac.yaml",
					"controller", l.controller, "resource", l.resource)
			})
		}
	}()
	return r
}

func (l *liveReads[T]) sent(r *liveRead[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.at.IsZero() {
		r.at = time.Now()
	}
}
