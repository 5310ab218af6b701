// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Known is the newest proof that holds for the registered cache, if there is one. It costs no request.
func (p *Prover) Known(gvr schema.GroupVersionResource) (Proof, bool) {
	r := p.registered(gvr)
	if r == nil {
		return Proof{}, false
	}
	return r.lookup(time.Time{}, MethodEarlier)
}

// Confirm gives the cache up to wait to pass a fence that was taken at or after asOf. It reports false if
// it did not, and at once if the cache stands where the last quiet proof found it. It costs no request.
func (p *Prover) Confirm(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (Proof, bool) {
	r := p.registered(gvr)
	if r == nil {
		return Proof{}, false
	}
	if proof, ok := r.lookup(asOf, MethodFence); ok {
		return proof, true
	}
	if target, ok := r.oldestFence(asOf); ok && r.worthWaiting() {
		r.waitFor(ctx, target.ResourceVersion, wait)
	}
	return r.lookup(asOf, MethodWait)
}

// ProveAtOnce is Prove for who expects that the cache will not confirm a fence soon, or cannot wait for that:
// a small collection is listed and compared with the cache at once. So it costs one request, if nothing is
// known already.
func (p *Prover) ProveAtOnce(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	r := p.registered(gvr)
	if r == nil || !r.small() {
		return p.Prove(ctx, gvr, asOf)
	}
	if proof, done := r.unprovable(); done {
		return proof, nil
	}
	start := p.opts.Clock.Now()
	proof, err := r.shareQuiet(ctx, asOf, r.proveQuiet)
	p.opts.Metrics.Proof(proof, p.opts.Clock.Since(start))
	return proof, err
}

func (r *resource) small() bool {
	r.mu.Lock()
	view := r.view
	r.mu.Unlock()
	return view != nil && view.Len() <= r.p.opts.SmallCollection
}

// ProveByWatch is Prove for a cache that did not pass the fence taken at asOf or later: what decides is
// the short metadata watch, whatever the size of the collection. So it costs one request and, unless
// something is missing, one bookmark.
func (p *Prover) ProveByWatch(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	r := p.registered(gvr)
	if r == nil {
		err := fmt.Errorf("proving %s: %w", gvr.GroupResource(), ErrNotRegistered)
		return (&failure{reason: ReasonNotRegistered, err: err}).proof(gvr), err
	}
	if proof, done := r.unprovable(); done {
		return proof, nil
	}
	start := p.opts.Clock.Now()
	proof, err := r.shareQuiet(ctx, asOf, func(ctx context.Context, fl *flight[Proof]) Proof {
		r.mu.Lock()
		view, held := r.view, r.held
		r.mu.Unlock()
		if held != "" {
			// No watch can say anything of a history that is gone; a list can.
			return r.proveQuiet(ctx, fl)
		}
		if view == nil {
			return r.unknown(ReasonNotRegistered, errors.New("the cache is gone"))
		}
		return r.concluded(r.proveByWatch(ctx, fl, view))
	})
	p.opts.Metrics.Proof(proof, p.opts.Clock.Since(start))
	return proof, err
}
