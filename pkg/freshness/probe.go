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

// Known is the newest valid proof of the registered cache, if there is one. If there is none because resource versions went
// backward and the cache has not relisted since, the reason says so. It costs no request.
func (p *Prover) Known(gvr schema.GroupVersionResource) (Proof, bool) {
	r := p.registered(gvr)
	if r == nil {
		return Proof{}, false
	}
	proof, ok := r.lookup(time.Time{}, methodEarlier)
	if !ok && !r.trusts() {
		proof = r.unknown(ReasonRewind, errNotRelisted)
	}
	return proof, ok
}

// AwaitFence waits for up to wait until the cache passes a fence that was taken at or after asOf. It returns false if
// the cache did not, and at once if it stands where the last quiet proof found it. It costs no request.
func (p *Prover) AwaitFence(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (Proof, bool) {
	r := p.registered(gvr)
	if r == nil {
		return Proof{}, false
	}
	if proof, ok := r.lookup(asOf, methodFence); ok {
		return proof, true
	}
	if target, ok := r.oldestFence(asOf); ok && r.worthWaiting() {
		r.waitFor(ctx, target.ResourceVersion, wait)
	}
	return r.lookup(asOf, methodWait)
}

// ProveAtOnce is Prove for a caller that does not expect the cache to pass a fence soon, or cannot wait for that:
// it lists a small collection and compares it with the cache at once. So it costs one request, if nothing is
// known already.
func (p *Prover) ProveAtOnce(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	r := p.registered(gvr)
	if r == nil || !r.small() {
		return p.Prove(ctx, gvr, asOf)
	}
	if proof, done := r.unprovable(); done {
		return proof, nil
	}
	return r.answer(r.shareQuiet(ctx, asOf, r.proveQuiet))
}

const (
	// few is the largest number of objects of which a list costs hardly more than a fence.
	few = 100
	// countFor is for how long a cache that was large counts as large, and one that was many times too large for as many times as long, up to countAgain:
	// counting takes time in proportion to the objects, and each deletion asks.
	countFor   = time.Second
	countAgain = time.Minute
)

// ProveSoon is Prove for a caller that delays something meanwhile: it proves a cache of up to 100 objects at once,
// without time to pass a fence first.
func (p *Prover) ProveSoon(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	if p.Few(gvr) {
		return p.ProveAtOnce(ctx, gvr, asOf)
	}
	return p.Prove(ctx, gvr, asOf)
}

// Few reports whether a cache has so few objects that ProveSoon lists them at once. It returns false if the cache is not
// registered, or had more within the last second.
func (p *Prover) Few(gvr schema.GroupVersionResource) bool {
	r := p.registered(gvr)
	return r != nil && r.holdsAtMost(few)
}

// ProveByList is Prove by one metadata list, which is fence and proof in one request, for a cache that is probably
// small and stands still. If the cache differs from the list, it has up to wait to catch up, so that a change
// on its way does not count as missing. A cache of more than Options.SmallCollection objects is not listed.
func (p *Prover) ProveByList(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (Proof, error) {
	return p.quietly(ctx, gvr, asOf, func(ctx context.Context, r *resource, fl *flight[Proof], view cacheView) Proof {
		small := p.opts.SmallCollection
		if view.Len() > small {
			return r.unknown(ReasonTooMany, fmt.Errorf("more than %d objects in the cache", small))
		}
		return r.concluded(r.proveByList(ctx, fl, view, small, wait))
	})
}

// quietly shares a proof by prove among all callers that ask for one. A cache whose history the server has lost is listed in
// any case: no watch can prove anything about it.
func (p *Prover) quietly(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, prove func(context.Context, *resource, *flight[Proof], cacheView) Proof) (Proof, error) {
	r := p.registered(gvr)
	if r == nil {
		err := fmt.Errorf("proving %s: %w", gvr.GroupResource(), errNotRegistered)
		return (&failure{reason: ReasonNotRegistered, err: err}).proof(gvr), err
	}
	if proof, done := r.unprovable(); done {
		return proof, nil
	}
	return r.answer(r.shareQuiet(ctx, asOf, func(ctx context.Context, fl *flight[Proof]) Proof {
		view, trusted := r.cache()
		switch {
		case view == nil:
			return r.unknown(ReasonNotRegistered, errors.New("the cache is gone"))
		case !trusted:
			return r.proveQuiet(ctx, fl)
		}
		return prove(ctx, r, fl, view)
	}))
}

// count is how many objects a cache had at a time.
type count struct {
	objects int
	at      time.Time
}

func (r *resource) small() bool { return r.holdsAtMost(r.p.opts.SmallCollection) }

func (r *resource) holdsAtMost(objects int) bool {
	r.mu.Lock()
	view, large := r.view, r.counted.objects > objects && time.Since(r.counted.at) < min(countFor*time.Duration(r.counted.objects/max(objects, 1)), countAgain)
	r.mu.Unlock()
	if view == nil || large {
		return false
	}
	n := view.Len()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == view {
		r.counted = count{n, time.Now()}
	}
	return n <= objects
}

// ProveByWatch is Prove for a cache that did not pass the fence taken at asOf or later: a short metadata
// watch decides, whatever the size of the collection. So it costs one request and, unless
// something is missing, one bookmark.
func (p *Prover) ProveByWatch(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Proof, error) {
	return p.quietly(ctx, gvr, asOf, func(ctx context.Context, r *resource, fl *flight[Proof], view cacheView) Proof {
		return r.concluded(r.proveByWatch(ctx, fl, view))
	})
}
