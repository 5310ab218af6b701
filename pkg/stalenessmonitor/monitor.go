// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	// Period is the least time between requests of a resource, on average. It is also how long a cache that lacks
	// something may stand still before it is called stalled, and how often the monitor looks for informers.
	Period = 5 * time.Second
	// sampleEvery is how often the monitor reads the stores' resource versions, which costs no request.
	sampleEvery = time.Second
	// stalledFor is how long a cache must have been stalled before Options.Stalled is called.
	stalledFor = 2 * time.Second
	// longestDelay is how long it is waited at most for what is late before Options.Stalled is called.
	longestDelay = 2 * time.Minute
	// lostAgain is the least time between two calls of Options.Lost for a cache.
	lostAgain = time.Minute
	// historyLength is how many samples are kept, one in each Period.
	historyLength = 60
)

// Prover is what the monitor needs of *freshness.Prover.
type Prover interface {
	Fence(ctx context.Context, resource schema.GroupVersionResource) (freshness.Fence, error)
	AwaitFence(ctx context.Context, resource schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, bool)
	ProveByList(ctx context.Context, resource schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, error)
	ProveByWatch(ctx context.Context, resource schema.GroupVersionResource, asOf time.Time) (freshness.Proof, error)
	Known(resource schema.GroupVersionResource) (freshness.Proof, bool)
}

var _ Prover = (*freshness.Prover)(nil)

// Informer is the part of a shared informer that the monitor looks at.
type Informer interface {
	GetStore() cache.Store
	// LastSyncResourceVersion is what the informer has received, and perhaps not processed yet.
	LastSyncResourceVersion() string
}

// Metrics receives what the monitor counts. Methods may be called concurrently.
type Metrics interface {
	// Watched: a cache is probed from now on.
	Watched(resource schema.GroupVersionResource)
	// Unwatched: its informer is gone, or the server does not serve it any more.
	Unwatched(resource schema.GroupVersionResource)
	// Probed: a probe has ended. outcome is a State, or the freshness.Reason why it
	// found none.
	Probed(resource schema.GroupVersionResource, outcome string)
	// Entered: the cache's state has changed.
	Entered(resource schema.GroupVersionResource, state string)
}

// Options of a Monitor.
type Options struct {
	Prover  Prover
	Metrics Metrics
	// Informers returns the informers that run now.
	Informers func() map[schema.GroupVersionResource]Informer
	// Protected reports whether a protected controller reads the cache of a resource, so that its age has to stay
	// within Bound; nil for none.
	Protected func(resource schema.GroupVersionResource) bool
	// Register makes an informer's cache known to the prover, before its first probe.
	Register func(resource schema.GroupVersionResource, informer Informer)
	// Forget undoes Register, after the last probe.
	Forget func(resource schema.GroupVersionResource, informer Informer)
	// Handlers, unless nil, returns the positions of an informer's event handlers.
	Handlers func(informer Informer) []*Delivery
	// Stalled, unless nil, is called every second for a cache that has been stalled for stalledFor, or, if changes come late, for as long as they do. relist says that its informer may
	// relist: a watch has brought what the cache lacks, so the server has it to bring, or a list costs no more than one of the monitor's.
	// It must return at once.
	Stalled func(resource schema.GroupVersionResource, reason string, relist bool)
	// Lost, unless nil, is called, at most once in lostAgain, for a cache that lacks what no watch will bring. It must return at once.
	Lost func(resource schema.GroupVersionResource)
}

// Monitor probes every informer's cache.
type Monitor struct {
	opts    Options
	pace    *pace
	contact contact

	mu     sync.Mutex
	caches map[schema.GroupVersionResource]*probed
	// sorted are the caches by group and resource, not to be changed.
	sorted []*probed
}

// New makes a monitor that does nothing before Run.
func New(opts Options) *Monitor {
	if opts.Protected == nil {
		opts.Protected = func(schema.GroupVersionResource) bool { return false }
	}
	if opts.Handlers == nil {
		opts.Handlers = func(Informer) []*Delivery { return nil }
	}
	now := time.Now()
	return &Monitor{opts: opts, pace: newPace(now), contact: contact{answered: now}, caches: map[schema.GroupVersionResource]*probed{}}
}

// Run probes until ctx ends, and returns when the last probe has ended.
func (m *Monitor) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ticker := time.NewTicker(scheduleEvery)
	defer ticker.Stop()
	for tick := 0; ; tick++ {
		if tick%int(Period/scheduleEvery) == 0 {
			m.discover(ctx, &wg)
			m.plan()
			for _, c := range m.all() {
				c.remember()
			}
		}
		sampled := tick%int(sampleEvery/scheduleEvery) == 0
		if sampled {
			for _, c := range m.all() {
				c.sample(ctx)
				c.callForHelp()
			}
		}
		m.schedule(ctx, &wg, sampled)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// discover starts and ends the probing of informers that came and went.
func (m *Monitor) discover(ctx context.Context, wg *sync.WaitGroup) {
	informers := m.opts.Informers()
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := 0
	for gvr, c := range m.caches {
		// A factory may return another wrapper of the same informer each time.
		if informer := informers[gvr]; informer == nil || informer.GetStore() != c.informer.GetStore() {
			c.stop()
			delete(m.caches, gvr)
			m.opts.Metrics.Unwatched(gvr)
			klog.FromContext(ctx).V(2).Info("An informer's cache is no longer monitored", "resource", gvr)
			wg.Go(func() {
				c.probes.Wait()
				m.forget(c)
			})
			continue
		}
		if c.setProtected(m.opts.Protected(gvr)) {
			waiting++
		}
	}
	for gvr, informer := range informers {
		if m.caches[gvr] != nil {
			continue
		}
		m.opts.Register(gvr, informer)
		m.opts.Metrics.Watched(gvr)
		c := &probed{m: m, gvr: gvr, informer: informer, protected: m.opts.Protected(gvr), stretch: 1, state: Unknown, reason: ReasonNotProbed, since: time.Now()}
		c.ctx, c.stop = context.WithCancel(ctx)
		c.count()
		if !c.protected {
			waiting++
		}
		c.quick = waiting <= quickFirst
		m.caches[gvr] = c
		m.opts.Metrics.Entered(gvr, string(Unknown))
	}
	m.sorted = slices.SortedFunc(maps.Values(m.caches), func(a, b *probed) int {
		return cmp.Or(cmp.Compare(a.gvr.Group, b.gvr.Group), cmp.Compare(a.gvr.Resource, b.gvr.Resource), cmp.Compare(a.gvr.Version, b.gvr.Version))
	})
}

// forget removes what is kept about a cache whose last probe has ended, unless it is monitored again.
func (m *Monitor) forget(c *probed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.caches[c.gvr]; now == nil || now.informer.GetStore() != c.informer.GetStore() {
		m.opts.Forget(c.gvr, c.informer)
	}
}

// all returns the caches, sorted by group and resource.
func (m *Monitor) all() []*probed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted
}

var seed = maphash.MakeSeed()

// phase spreads the first probes of different resources over a time.
func phase(gvr schema.GroupVersionResource, period time.Duration) time.Duration {
	return time.Duration(maphash.Comparable(seed, gvr) % uint64(period))
}

// Objects returns the number of objects in the cache of a resource. It costs time in proportion.
func (m *Monitor) Objects(gvr schema.GroupVersionResource) int {
	m.mu.Lock()
	c := m.caches[gvr]
	m.mu.Unlock()
	if c == nil {
		return 0
	}
	return len(c.informer.GetStore().ListKeys())
}

// Fenced takes a fence, of the monitor or of a proof that a controller needed. The monitor probes a cache when its last proof is too old,
// so any fence that the cache passes takes the place of a probe.
func (m *Monitor) Fenced(gvr schema.GroupVersionResource, f freshness.Fence) {
	m.mu.Lock()
	c := m.caches[gvr]
	m.mu.Unlock()
	if c != nil {
		m.answers()
		c.fenced(context.Background(), f)
	}
}

// Caches returns what is known about every cache, except Objects, sorted by group and resource.
func (m *Monitor) Caches() []Cache {
	caches := m.all()
	out := make([]Cache, len(caches))
	for i, c := range caches {
		out[i] = c.snapshot()
	}
	return out
}
