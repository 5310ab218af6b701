// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package graphguard

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// askEvery is how often a resource is proven at most.
	askEvery = 2 * time.Second
	// Custom resources are asked about at customRate a second, after the first customBurst.
	customRate, customBurst = 30, 60
	// deliverWait is how long a proof waits until the graph has what the cache has.
	deliverWait = 10 * time.Second
	// provenFor is how long an owner stays proven that is still there.
	provenFor = time.Minute
	// knownFor is how long it is known that an owner has waited for as long as it may: above the longest backoff of a queue.
	knownFor = 20 * time.Minute
	// lookEvery is how often it is looked for owners that have waited for long enough.
	lookEvery = time.Second
)

// Options of a Guard. All are required.
type Options struct {
	Controller string
	// Prove says whether the cache of a resource is as new as the server was at asOf.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// Register has Prove know the cache of a resource. It may be called again.
	Register func(resource schema.GroupResource, store cache.Store) error
}

// Guard implements consistency.GraphGuard.
type Guard struct {
	ctx   context.Context
	opts  Options
	graph consistency.Graph
	pace  *rate.Limiter

	mu       sync.Mutex
	followed map[schema.GroupVersionResource]*followed
	owners   map[ownerKey]*owner
	waiting  int // of owners
	looking  bool
	// lists are those that have replaced the content of a cache, and are not in the graph yet.
	lists map[*followed]string
}

var _ consistency.GraphGuard = &Guard{}

type ownerKey struct {
	uid      types.UID
	blocking bool
}

// owner is one that Proven was asked about.
type owner struct {
	consistency.GraphOwner
	since time.Time
	again func()
	// open are the resources that are not proven for it yet.
	open map[*followed]struct{}
	// waited are those for which it has waited for as long as it may. If its finalizer cannot be taken off then, the next try waits for
	// one answer about them, and not for as long again.
	waited map[*followed]struct{}
	// proven is when it was; zero while it waits.
	proven time.Time
}

// New returns the guard of a graph, which works until ctx ends.
func New(ctx context.Context, opts Options, graph consistency.Graph) *Guard {
	return &Guard{ctx: ctx, opts: opts, graph: graph, pace: rate.NewLimiter(customRate, customBurst),
		followed: map[schema.GroupVersionResource]*followed{}, owners: map[ownerKey]*owner{}, lists: map[*followed]string{}}
}

// Proven implements consistency.GraphGuard.
func (g *Guard) Proven(of consistency.GraphOwner, again func()) bool {
	if proven, known := g.known(of, again); known {
		return proven
	}
	monitored := g.graph.Monitored()
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	key := ownerKey{of.UID, of.Blocking}
	o := &owner{GraphOwner: of, since: now, again: again, open: map[*followed]struct{}{}, waited: map[*followed]struct{}{}}
	if before := g.owners[key]; before != nil {
		o.waited = before.waited
	}
	for _, resource := range monitored {
		f := g.followed[resource]
		if f == nil || !counts(of, f.GraphResource) {
			continue
		}
		if !g.over(o, f, now) {
			o.open[f] = struct{}{}
		}
		if !f.asking.running {
			f.asking.running = true
			go g.ask(f)
		}
	}
	if len(o.open) == 0 {
		return true
	}
	g.owners[key] = o
	g.waiting++
	if !g.looking {
		g.looking = true
		go g.look()
	}
	return false
}

// known is whether the owner was proven, if it was asked about before.
func (g *Guard) known(of consistency.GraphOwner, again func()) (proven, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.owners[ownerKey{of.UID, of.Blocking}]
	if o == nil {
		return false, false
	}
	if o.proven.IsZero() {
		o.again = again
		return false, true
	}
	fresh := time.Since(o.proven) < provenFor
	return fresh, fresh
}

// Waiting implements consistency.GraphGuard.
func (g *Guard) Waiting(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.owners[ownerKey{uid: uid}]
	return o != nil && o.proven.IsZero()
}

// ask proves a resource again and again until no owner waits for it any more.
func (g *Guard) ask(f *followed) {
	resource := f.GroupResource()
	for {
		g.mu.Lock()
		next := f.asking.last.Add(askEvery)
		g.mu.Unlock()
		if !g.sleep(time.Until(next)) || f.custom() && g.pace.Wait(g.ctx) != nil {
			return
		}
		asOf := time.Now()
		g.mu.Lock()
		if f.asking.failing.IsZero() || asOf.Sub(f.asking.ended) > forgetFailing {
			f.asking.failing, f.asking.stale = asOf, time.Time{}
		}
		f.asking.last = asOf
		g.mu.Unlock()
		if err := g.opts.Register(resource, f.store); err != nil {
			klog.FromContext(g.ctx).V(2).Info("A cache cannot be proven fresh", "controller", g.opts.Controller, "resource", resource, "err", err)
		}
		proof := g.opts.Prove(g.ctx, resource, asOf)
		reached := proof.Fresh() && f.reach(g.ctx, proof.ResourceVersion)
		if !g.settle(f, asOf, proof, reached) {
			return
		}
	}
}

func (g *Guard) sleep(d time.Duration) bool {
	if d <= 0 {
		return g.ctx.Err() == nil
	}
	select {
	case <-g.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// settle notes the answer, and reports whether an owner still waits for the resource.
func (g *Guard) settle(f *followed, asOf time.Time, proof freshness.Proof, reached bool) (more bool) {
	g.mu.Lock()
	first := f.asking.proof.Outcome == "" || f.asking.proof.Fresh() && !f.asking.behind
	f.asking.proof, f.asking.behind, f.asking.ended = proof, proof.Fresh() && !reached, time.Now()
	switch {
	case reached:
		f.asking.failing, f.asking.stale = time.Time{}, time.Time{}
	case proof.Outcome == freshness.Stale:
		f.asking.stale = f.asking.ended
	case proof.StaleAt.After(f.asking.stale):
		f.asking.stale = proof.StaleAt
	}
	put := 0
	var ready []func()
	for _, o := range g.owners {
		if _, open := o.open[f]; !open {
			continue
		}
		_, waited := o.waited[f]
		switch {
		case (reached || waited) && !o.since.After(asOf):
			delete(o.open, f)
			ready = g.done(o, ready)
		default:
			more = true
			put++
		}
	}
	f.asking.running = more
	g.mu.Unlock()
	if put > 0 && !reached {
		metrics.Unproven(g.opts.Controller, f.GroupResource(), string(proof.Outcome))
		if first {
			klog.FromContext(g.ctx).Info("Finalizers of deleted owners wait until a cache is proven fresh and the graph has all of it",
				"controller", g.opts.Controller, "resource", f.GroupResource(), "owners", put, "proof", proof.String())
		}
	}
	for _, again := range ready {
		again()
	}
	return more
}

// done adds what is to be called if the owner waits for nothing any more. mu must be held.
func (g *Guard) done(o *owner, ready []func()) []func() {
	if len(o.open) > 0 || !o.proven.IsZero() {
		return ready
	}
	o.proven = time.Now()
	g.waiting--
	return append(ready, o.again)
}

// look lets owners go on that have waited for long enough, and forgets those that were proven for long.
func (g *Guard) look() {
	for g.sleep(lookEvery) {
		var ready []func()
		now := time.Now()
		gone := map[*followed]int{}
		g.mu.Lock()
		for key, o := range g.owners {
			if !o.proven.IsZero() {
				if age := now.Sub(o.proven); age >= knownFor || age >= provenFor && len(o.waited) == 0 {
					delete(g.owners, key)
				}
				continue
			}
			for f := range o.open {
				if g.over(o, f, now) {
					delete(o.open, f)
					o.waited[f] = struct{}{}
					gone[f]++
				}
			}
			ready = g.done(o, ready)
		}
		g.looking = len(g.owners) > 0
		looking := g.looking
		g.mu.Unlock()
		for f, owners := range gone {
			klog.FromContext(g.ctx).Info("Taking finalizers off after the longest wait, as upstream would, though a cache is not proven fresh",
				"controller", g.opts.Controller, "resource", f.GroupResource(), "owners", owners)
		}
		for _, again := range ready {
			again()
		}
		if !looking {
			return
		}
	}
}

// forget forgets an owner that is gone.
func (g *Guard) forget(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.owners) == 0 {
		return
	}
	for _, blocking := range []bool{false, true} {
		key := ownerKey{uid, blocking}
		if o := g.owners[key]; o != nil {
			if o.proven.IsZero() {
				g.waiting--
			}
			delete(g.owners, key)
		}
	}
}

// doubt notes that a list replaces the content of a cache: what was absent may be back, and an owner may be deleted for another
// time.
func (g *Guard) doubt(f *followed, list string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lists[f] = list
	g.graph.TrustAbsence(false)
	for key, o := range g.owners {
		if o.Kind == f.Kind && !o.proven.IsZero() {
			delete(g.owners, key)
		}
	}
}

// trust notes that the list is in the graph.
func (g *Guard) trust(f *followed, list string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lists[f] != list {
		return
	}
	if delete(g.lists, f); len(g.lists) == 0 {
		g.graph.TrustAbsence(true)
	}
}
