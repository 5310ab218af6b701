// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
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

	fenced atomic.Pointer[func(schema.GroupVersionResource, Fence)]

	mu        sync.RWMutex
	closed    bool
	resources map[schema.GroupVersionResource]*resource
	// versions are those of resources, by resource. A slice of it is not changed.
	versions map[schema.GroupResource][]schema.GroupVersionResource

	traffic traffic
	// Of the resources that were refused.
	refusedBudget *rate.Limiter
	refusedSlots  chan struct{}
}

// New makes a prover. It sends nothing before it is asked.
func New(opts Options) (*Prover, error) {
	if opts.Config == nil {
		return nil, errors.New("freshness: no rest.Config given")
	}
	opts = opts.withDefaults()
	c, err := newClient(opts, rate.NewLimiter(rate.Limit(opts.QPS), opts.Burst))
	if err != nil {
		return nil, err
	}
	p := &Prover{
		opts: opts, client: c, resources: map[schema.GroupVersionResource]*resource{}, versions: map[schema.GroupResource][]schema.GroupVersionResource{},
		refusedBudget: rate.NewLimiter(rate.Limit(opts.QPS/refusedShare), max(1, opts.Burst/refusedShare)),
		refusedSlots:  make(chan struct{}, refusedSlots),
	}
	c.levelSeen, c.timeout = p.levelSeen, p.requestTimeout
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

// Track registers the store of a resource that source tracks: the prover waits for the store by the source, and reports every fence to
// it. Track returns false, and does nothing, if that is so already. Another store replaces the one before, and its proofs are
// forgotten.
func (p *Prover) Track(gvr schema.GroupVersionResource, store cache.Store, source *rvtracker.Source) bool {
	return p.resource(gvr).register(&storeView{store, source.Wait}, source)
}

// Untrack undoes Track, and forgets what was proven. Requests under way end as usual.
func (p *Prover) Untrack(gvr schema.GroupVersionResource, source *rvtracker.Source) bool {
	if r := p.registered(gvr); r == nil || r.trackedBy() != source {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.resources, gvr)
	of := gvr.GroupResource()
	left := slices.DeleteFunc(slices.Clone(p.versions[of]), func(other schema.GroupVersionResource) bool { return other == gvr })
	if p.versions[of] = left; len(left) == 0 {
		delete(p.versions, of)
	}
	return true
}

// Tell has fenced called from now on for every fence that counts for proofs. fenced must return at once.
func (p *Prover) Tell(fenced func(resource schema.GroupVersionResource, fence Fence)) {
	p.fenced.Store(&fenced)
}

// Wrote uses the answer to a write of a resource as a fence: all that was committed before the write was sent has a lower RV than
// the write. Callers that wait for a proof get it as soon as the cache has passed that RV. Wrote ignores an answer that is hardly newer
// than the last fence, and one that belongs to another cache's source.
func (p *Prover) Wrote(ctx context.Context, gvr schema.GroupVersionResource, rv string, sent rvtracker.Sent) {
	r := p.registered(gvr)
	if r == nil || !r.wrote(rv, sent) || !r.awaited() {
		return
	}
	p.background(ctx, func(ctx context.Context) {
		r.waitFor(ctx, rv, passWait)
		r.lookAgain()
	})
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
		r = &resource{p: p, gvr: gvr}
		p.resources[gvr] = r
		of := gvr.GroupResource()
		p.versions[of] = append(slices.Clone(p.versions[of]), gvr)
	}
	return r
}

// registered returns nil if the resource has no cache.
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

// background runs work for all callers that wait for it: with the values of the first caller's
// context, but until the prover is closed. It returns false after Close.
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

// levelSeen notes the priority level of a resource's requests.
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

// requestTimeout is how long a list of the resource may take.
func (p *Prover) requestTimeout(gvr schema.GroupVersionResource) time.Duration {
	r := p.resource(gvr)
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.patience, p.opts.RequestTimeout)
}

// Prove says whether the cache of a resource is as new as the server was at asOf. The
// error is not nil only if ctx ended or no cache is registered; the proof is then
// Unknown.
func (p *Prover) Prove(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	r := p.registered(gvr)
	if r == nil {
		err := fmt.Errorf("proving %s: %w", gvr.GroupResource(), errNotRegistered)
		return (&failure{reason: ReasonNotRegistered, err: err}).proof(gvr), err
	}
	if proof, ok := r.lookup(asOf, methodEarlier); ok {
		return proof, nil
	}
	if now := time.Now(); asOf.After(now) {
		f := &failure{reason: reasonInFuture, retryAfter: asOf.Sub(now), err: fmt.Errorf("asked for a time %s from now", asOf.Sub(now))}
		return f.proof(gvr), nil
	}
	return r.answer(r.prove(ctx, asOf))
}
