// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errClosed = errors.New("freshness prover is closed")

// Prover takes fences and proves caches fresh.
type Prover struct {
	opts   Options
	client *client

	// ctx ends with Close; work that callers share runs under it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.RWMutex
	closed    bool
	resources map[schema.GroupVersionResource]*resource

	traffic traffic
	// Of the resources that were refused.
	refusedBudget *budget
	refusedSlots  chan struct{}
}

// New makes a prover. It sends nothing before it is asked.
func New(opts Options) (*Prover, error) {
	if opts.Config == nil {
		return nil, errors.New("freshness: no rest.Config given")
	}
	opts = opts.withDefaults()
	c, err := newClient(opts, newBudget(opts, opts.QPS, opts.Burst))
	if err != nil {
		return nil, err
	}
	p := &Prover{
		opts: opts, client: c, resources: map[schema.GroupVersionResource]*resource{},
		refusedBudget: newBudget(opts, opts.QPS/refusedShare, max(1, opts.Burst/refusedShare)),
		refusedSlots:  make(chan struct{}, refusedSlots),
	}
	c.levelSeen = p.levelSeen
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Close ends what is under way and waits for it. Everything asked later is Unknown.
func (p *Prover) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// Register tells the cache of a resource. Doing it again replaces the cache and
// forgets what was proven.
func (p *Prover) Register(gvr schema.GroupVersionResource, view CacheView) {
	r := p.resource(gvr)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view, r.counted = view, count{}
	r.quiet, r.quietAt, r.maxStore, r.held = quiet{}, "", "", ""
}

// Unregister forgets the cache of a resource, and what was proven. What is under way ends as it would have.
func (p *Prover) Unregister(gvr schema.GroupVersionResource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.resources, gvr)
}

// Observe tells that the registered cache has reached rv. It is optional and may be
// called from the informer's goroutine, in the cache's order. It spares views that poll
// the polling, and after a rewind it makes sure that no move of the cache goes unseen.
func (p *Prover) Observe(gvr schema.GroupVersionResource, rv string) {
	p.mu.RLock()
	r := p.resources[gvr]
	p.mu.RUnlock()
	if r != nil {
		r.observe(rv)
	}
}

// AddFence feeds a fence that somebody else took. Without Fence.StoreRV a rewind may
// pass unseen until the next fence that the prover takes itself; better let it take
// them all, by Fence.
func (p *Prover) AddFence(ctx context.Context, gvr schema.GroupVersionResource, f Fence) {
	p.resource(gvr).note(ctx, f)
}

func (p *Prover) resource(gvr schema.GroupVersionResource) *resource {
	p.mu.RLock()
	r := p.resources[gvr]
	p.mu.RUnlock()
	if r != nil {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r = p.resources[gvr]; r == nil {
		r = &resource{p: p, gvr: gvr, waiters: map[*waiter]struct{}{}}
		p.resources[gvr] = r
	}
	return r
}

// registered returns nil if no cache is.
func (p *Prover) registered(gvr schema.GroupVersionResource) *resource {
	p.mu.RLock()
	r := p.resources[gvr]
	p.mu.RUnlock()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == nil {
		return nil
	}
	return r
}

// background runs work for all who wait for it: with the values of the first caller's
// context, but ending only with the prover. It reports false after Close.
func (p *Prover) background(ctx context.Context, work func(context.Context)) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(p.ctx, cancel)
	p.wg.Go(func() {
		defer cancel()
		defer stop()
		work(ctx)
	})
	return true
}

// levelSeen notes the priority level that a resource's requests are of.
func (p *Prover) levelSeen(gvr schema.GroupVersionResource, level string) {
	p.mu.RLock()
	r := p.resources[gvr]
	p.mu.RUnlock()
	if r != nil {
		r.mu.Lock()
		r.level = level
		r.mu.Unlock()
	}
}

// Prove says whether the cache of a resource is as new as the server was at asOf. The
// error is not nil only if ctx ended or no cache is registered; the proof is then
// Unknown.
func (p *Prover) Prove(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	start := p.opts.Clock.Now()
	proof, err := p.prove(ctx, gvr, asOf, start)
	p.opts.Metrics.Proof(proof, p.opts.Clock.Since(start))
	return proof, err
}

// Holds is true if a proof that was given still holds for the registered cache. Only an
// Exact one can cease to hold without the cache going back: objects that were made and
// deleted again while it was behind are not in the list, but will pass through the cache
// when it catches up. Who must be certain of what was read after the proof asks again
// after the reading; it costs no request.
func (p *Prover) Holds(proof Proof) bool {
	r := p.registered(proof.Resource)
	if r == nil || proof.Outcome != Proven {
		return false
	}
	_, ok := r.lookup(proof.At, MethodEarlier)
	return ok
}

func (p *Prover) prove(ctx context.Context, gvr schema.GroupVersionResource, asOf, now time.Time) (Proof, error) {
	r := p.registered(gvr)
	if r == nil {
		err := fmt.Errorf("proving %s: %w", gvr.GroupResource(), ErrNotRegistered)
		return (&failure{reason: ReasonNotRegistered, err: err}).proof(gvr), err
	}
	if proof, ok := r.lookup(asOf, MethodEarlier); ok {
		return proof, nil
	}
	if asOf.After(now) {
		f := &failure{reason: ReasonInFuture, retryAfter: asOf.Sub(now), err: fmt.Errorf("asked for a time %s from now", asOf.Sub(now))}
		return f.proof(gvr), nil
	}
	return r.prove(ctx, asOf)
}
