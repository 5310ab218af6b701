// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// firstFence bounds the fence that is taken before an informer starts.
const firstFence = 2 * time.Second

// proofs joins the tracker and the prover: the prover looks at the caches that the tracker follows, and
// every fence of the prover is told to the tracker.
type proofs struct {
	mapper meta.RESTMapper
	prover *freshness.Prover
	counts *metrics.Staleness
	// rewound tells the tracker of a rewind that a resource shows which it does not follow.
	rewound func(schema.GroupResource)

	mu      sync.Mutex
	sources map[schema.GroupVersionResource]*rvtracker.Source
	scopes  map[schema.GroupVersionResource]scope
	// onRewound, unless nil, is told of every rewind.
	onRewound func(schema.GroupVersionResource)
	// onFenced, unless nil, is told of every fence.
	onFenced func(schema.GroupVersionResource, freshness.Fence)
}

// The budget is far above what is used: the monitor takes 2 requests a second, and proofs for decisions at most one
// for a resource in 2 s. It bounds what many resources at once, or a mistake, could cost the server.
const (
	proverQPS   = 60
	proverBurst = 80
)

func newProofs(config *rest.Config, mapper meta.RESTMapper) (*proofs, error) {
	p := &proofs{mapper: mapper, counts: &metrics.Staleness{}, sources: map[schema.GroupVersionResource]*rvtracker.Source{}, scopes: map[schema.GroupVersionResource]scope{}}
	prover, err := freshness.New(freshness.Options{
		Config: config, QPS: proverQPS, Burst: proverBurst, Metrics: p.counts,
		Namespaced: p.namespaced, OnFence: p.onFence, OnFenced: p.fenced, OnRewind: p.onRewind,
	})
	if err != nil {
		return nil, fmt.Errorf("making the prover: %w", err)
	}
	p.prover = prover
	return p, nil
}

// register has the prover look at a cache. It takes a fence at once: a cache whose first list is as
// new as that is proven as new as the start of leadership without a request of its own. Nothing can
// be proven of a resource that has no mapping.
func (p *proofs) register(ctx context.Context, resource schema.GroupResource, store freshness.Store, source *rvtracker.Source) error {
	gvr, err := p.mapper.ResourceFor(resource.WithVersion(""))
	if err != nil {
		return fmt.Errorf("no version of %s: %w", resource, err)
	}
	if !p.view(gvr, store, source) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstFence)
	defer cancel()
	if _, err := p.prover.Fence(ctx, gvr); err != nil {
		klog.FromContext(ctx).V(2).Info("No fence of a cache before its first list", "resource", resource, "err", err)
	}
	return nil
}

// view has the prover look at a cache, unless it does already.
func (p *proofs) view(gvr schema.GroupVersionResource, store freshness.Store, source *rvtracker.Source) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[gvr] == source {
		return false
	}
	p.sources[gvr] = source
	p.prover.Register(gvr, freshness.StoreView(store, source.Wait))
	return true
}

// forget undoes view.
func (p *proofs) forget(gvr schema.GroupVersionResource, source *rvtracker.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[gvr] == source {
		delete(p.sources, gvr)
		delete(p.scopes, gvr)
		p.prover.Unregister(gvr)
	}
}

// scopeFor is how long a resource's scope is remembered: the mapper forgets all it knows every 30 s, and each
// question after that has it read the whole discovery.
const scopeFor = 10 * time.Minute

// scope of a resource, as known until a time.
type scope struct {
	namespaced, known bool
	until             time.Time
}

// namespaced says whether a resource is. A resource that has gone away has no answer.
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

func (p *proofs) source(gvr schema.GroupVersionResource) *rvtracker.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources[gvr]
}

// onFence tells the tracker of every fence: one below what the cache had proves a rewind.
func (p *proofs) onFence(gvr schema.GroupVersionResource) (answered func(freshness.Fence)) {
	source := p.source(gvr)
	if source == nil {
		return nil
	}
	token := source.BeginFence()
	return func(f freshness.Fence) { source.ObserveFence(token, f.ResourceVersion) }
}

// fenced tells the monitor of every fence, whoever asked for it.
func (p *proofs) fenced(gvr schema.GroupVersionResource, f freshness.Fence) {
	p.mu.Lock()
	tell := p.onFenced
	p.mu.Unlock()
	if tell != nil {
		tell(gvr, f)
	}
}

// onRewind leaves to the tracker what it has been told of by onFence.
func (p *proofs) onRewind(rewind freshness.Rewind) {
	if p.source(rewind.Resource) == nil {
		p.rewound(rewind.Resource.GroupResource())
	}
	p.mu.Lock()
	tell := p.onRewound
	p.mu.Unlock()
	if tell != nil {
		tell(rewind.Resource)
	}
}

// lookup finds the version of a registered resource.
func (p *proofs) lookup(resource schema.GroupResource) (schema.GroupVersionResource, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for gvr := range p.sources {
		if gvr.GroupResource() == resource {
			return gvr, true
		}
	}
	return schema.GroupVersionResource{}, false
}

func (p *proofs) prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	return p.proveBy(ctx, p.prover.ProveSoon, resource, asOf)
}

// few reports whether prove lists a cache at once.
func (p *proofs) few(resource schema.GroupResource) bool {
	gvr, ok := p.lookup(resource)
	return ok && p.prover.Few(gvr)
}

func (p *proofs) proveBy(ctx context.Context, prove func(context.Context, schema.GroupVersionResource, time.Time) (freshness.Proof, error), resource schema.GroupResource, asOf time.Time) freshness.Proof {
	gvr, ok := p.lookup(resource)
	if !ok {
		return freshness.Proof{Resource: resource.WithVersion(""), Outcome: freshness.Unknown, Reason: freshness.ReasonNotRegistered, Err: freshness.ErrNotRegistered}
	}
	proof, err := prove(ctx, gvr, asOf)
	if err != nil && proof.Outcome == "" {
		return freshness.Proof{Resource: gvr, Outcome: freshness.Unknown, Reason: freshness.ReasonServerError, Err: err}
	}
	return proof
}

// known implements prover.
func (p *proofs) known(resource schema.GroupResource) (freshness.Proof, bool) {
	gvr, ok := p.lookup(resource)
	if !ok {
		return freshness.Proof{}, false
	}
	return p.prover.Known(gvr)
}

var _ prover = &proofs{}

// relistProver proves to the tracker that caches are as new as a relist of another.
type relistProver struct{ *proofs }

var _ rvtracker.Prover = relistProver{}

// Prove implements rvtracker.Prover. Most of the caches that it is asked about are quiet.
func (p relistProver) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) (wait func(context.Context), err error) {
	proof := p.proveBy(ctx, p.prover.ProveAtOnce, resource, asOf)
	wait = func(ctx context.Context) { p.wait(ctx, resource, proof) }
	switch {
	case proof.Fresh():
		return nil, nil
	case proof.Outcome == freshness.Stale:
		return wait, fmt.Errorf("%w: %s", rvtracker.ErrStale, proof)
	case hopeless(proof, asOf):
		return nil, fmt.Errorf("%w: %s", rvtracker.ErrUnprovable, proof)
	}
	return wait, errors.New(proof.String())
}

// wait returns when the cache has what it lacked, or after a while.
func (p *proofs) wait(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) {
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
	if gvr, ok := p.lookup(resource); ok && rv != "" {
		if p.source(gvr).Wait(ctx, rv) == nil {
			return
		}
	}
	<-ctx.Done()
}
