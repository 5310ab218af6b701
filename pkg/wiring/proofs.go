// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// proofs joins the tracker and the prover: the prover proves the caches that the tracker follows, and
// reports every fence to the tracker.
type proofs struct {
	mapper meta.RESTMapper
	prover *freshness.Prover
	counts *metrics.Staleness

	mu     sync.Mutex
	scopes map[schema.GroupVersionResource]scope
	// fencing has a channel for each fence of register that is under way, closed with its answer.
	fencing map[chan struct{}]struct{}
}

// The budget is far above usual use: the monitor makes 2 requests a second, and decisions that a proof from up to 2 s before will do for make
// one for a resource in 2 s. It bounds what many resources at once, decisions that need a proof as of the moment, or a bug could cost the server.
const (
	proverQPS   = 60
	proverBurst = 80
)

func newProofs(config *rest.Config, mapper meta.RESTMapper) (*proofs, error) {
	p := &proofs{mapper: mapper, counts: &metrics.Staleness{}, scopes: map[schema.GroupVersionResource]scope{}, fencing: map[chan struct{}]struct{}{}}
	prover, err := freshness.New(freshness.Options{
		Config: config, QPS: proverQPS, Burst: proverBurst, Metrics: p.counts, Namespaced: p.namespaced,
	})
	if err != nil {
		return nil, fmt.Errorf("making the prover: %w", err)
	}
	p.prover = prover
	return p, nil
}

// register registers a cache with the prover. Before the cache's first list it sends a fence, too, without waiting for the answer. A first
// list that is sent after the answer has passed that fence, so the cache is proven as new as the start of leadership without another
// request. One that is sent before the answer may lack what the fence has, and proves nothing until the cache has passed it. Nothing can be
// proven about a resource that has no mapping.
func (p *proofs) register(ctx context.Context, resource schema.GroupResource, store cache.Store, source *rvtracker.Source) error {
	asOf := time.Now()
	gvr, err := p.mapper.ResourceFor(resource.WithVersion(""))
	if err != nil {
		return fmt.Errorf("no version of %s: %w", resource, err)
	}
	if !p.prover.Track(gvr, store, source) || store.LastStoreSyncResourceVersion() != "" {
		return nil
	}
	answered := make(chan struct{})
	p.mu.Lock()
	p.fencing[answered] = struct{}{}
	p.mu.Unlock()
	go func() {
		// A proof that is asked for meanwhile shares the fence.
		if _, err := p.prover.FenceSince(ctx, gvr, asOf); err != nil {
			klog.FromContext(ctx).V(2).Info("The fence before the first list failed", "resource", resource, "err", err)
		}
		p.mu.Lock()
		delete(p.fencing, answered)
		p.mu.Unlock()
		close(answered)
	}()
	return nil
}

// fenced returns when the fences that register has sent are answered, or ctx ends.
func (p *proofs) fenced(ctx context.Context) {
	p.mu.Lock()
	fencing := slices.Collect(maps.Keys(p.fencing))
	p.mu.Unlock()
	for _, answered := range fencing {
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
	}
}

// forget unregisters a cache from the prover.
func (p *proofs) forget(gvr schema.GroupVersionResource, source *rvtracker.Source) {
	if p.prover.Untrack(gvr, source) {
		p.mu.Lock()
		delete(p.scopes, gvr)
		p.mu.Unlock()
	}
}

// scopeFor is how long a resource's scope is remembered: the mapper forgets all that it knows every 30 s, and then
// reads the whole discovery for the next question.
const scopeFor = 10 * time.Minute

// scope of a resource, as known until a time.
type scope struct {
	namespaced, known bool
	until             time.Time
}

// namespaced says whether a resource is namespaced, and whether that is known: not for one that is not served any more.
func (p *proofs) namespaced(gvr schema.GroupVersionResource) (namespaced, known bool) {
	p.mu.Lock()
	s, ok := p.scopes[gvr]
	p.mu.Unlock()
	if !ok || time.Now().After(s.until) {
		s = p.askScope(gvr)
		p.mu.Lock()
		p.scopes[gvr] = s
		p.mu.Unlock()
	}
	return s.namespaced, s.known
}

func (p *proofs) askScope(gvr schema.GroupVersionResource) scope {
	s := scope{until: time.Now().Add(scopeFor)}
	gvk, err := p.mapper.KindFor(gvr)
	if err != nil {
		return s
	}
	mapping, err := p.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return s
	}
	s.namespaced, s.known = mapping.Scope.Name() == meta.RESTScopeNameNamespace, true
	return s
}

// Prove implements consistencystore.Prover.
func (p *proofs) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	return p.proveBy(ctx, p.prover.ProveSoon, resource, asOf)
}

// few reports whether Prove lists a cache at once.
func (p *proofs) few(resource schema.GroupResource) bool {
	gvr, _ := p.prover.Lookup(resource)
	return p.prover.Few(gvr)
}

func (p *proofs) proveBy(ctx context.Context, prove func(context.Context, schema.GroupVersionResource, time.Time) (freshness.Proof, error), resource schema.GroupResource, asOf time.Time) freshness.Proof {
	gvr, _ := p.prover.Lookup(resource)
	proof, _ := prove(ctx, gvr, asOf) // Its error is the proof's, too.
	return proof
}

// Known implements consistencystore.Prover.
func (p *proofs) Known(resource schema.GroupResource) (freshness.Proof, bool) {
	gvr, _ := p.prover.Lookup(resource)
	return p.prover.Known(gvr)
}

// Wrote implements consistencystore.Prover.
func (p *proofs) Wrote(resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	gvr, _ := p.prover.Lookup(resource)
	p.prover.Wrote(context.Background(), gvr, rv, sent)
}

var _ consistencystore.Prover = &proofs{}

// relistProver proves to the tracker that caches are as new as a relist of another, or have what the server has though they went back.
type relistProver struct{ *proofs }

var _ rvtracker.Prover = relistProver{}

// Prove implements rvtracker.Prover. Most of the caches that it is asked about are quiet.
func (p relistProver) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) (wait func(context.Context), err error) {
	proof := p.proveBy(ctx, p.prover.ProveAtOnce, resource, asOf)
	wait = func(ctx context.Context) { p.Wait(ctx, resource, proof) }
	switch {
	case proof.Fresh():
		return nil, nil
	case proof.Outcome == freshness.Stale:
		return wait, fmt.Errorf("%w: %s", rvtracker.ErrStale, proof)
	case proof.Hopeless(asOf):
		return nil, fmt.Errorf("%w: %s", rvtracker.ErrUnprovable, proof)
	}
	return wait, errors.New(proof.String())
}

const (
	// retryUnproven is how long an action waits before it asks for a proof again, if the answer does
	// not say, and retryStale how long at most for a stale cache to catch up.
	retryUnproven = time.Second
	retryStale    = 5 * time.Second
)

// Wait implements consistencystore.Prover: it returns when the cache has what it lacked, or after a while.
func (p *proofs) Wait(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) {
	limit, rv := retryUnproven, ""
	switch proof.Outcome {
	case freshness.Stale:
		limit, rv = retryStale, proof.ResourceVersion
	case freshness.Unknown:
		rv = proof.ResourceVersion
		if proof.RetryAfter > 0 {
			limit = proof.RetryAfter
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if rv != "" && p.prover.WaitFor(ctx, resource, rv) == nil {
		return
	}
	<-ctx.Done()
}
