// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	// startFences is how long the informers' start may wait for all fences that were sent while the controllers were built:
	// a first list that is sent after its fence was answered is proven by it.
	startFences = 500 * time.Millisecond
	// retry is how soon a cache is looked at again, whatever is known of it.
	retry = 100 * time.Millisecond
)

// StartOptions say how caches are proven before controllers start on them.
type StartOptions struct {
	// Prove says whether the cache of a resource is as new as the server was at asOf.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// Wait returns when, after a proof, it may be worth proving again.
	Wait func(ctx context.Context, resource schema.GroupResource, proof freshness.Proof)
	// Register has the prover look at a cache, and sends a fence without waiting for the answer.
	Register func(ctx context.Context, resource schema.GroupResource, store cache.Store) error
	// Fenced returns when all fences that were sent for registered caches, whoever registered them, are answered, or ctx ends.
	Fenced func(ctx context.Context)
	// Mapper knows the resources of types.
	Mapper meta.RESTMapper
	// Since is the start of leadership.
	Since time.Time
	// Waits reports whether a controller waits, by its name in --controllers.
	Waits func(controller string) bool
}

// StartInformers hands controllers informers that have synced only once their caches are proven as new as the start of leadership.
// It implements app.ControllerInformers. Informers that it is asked for directly do not wait.
type StartInformers struct {
	informers.SharedInformerFactory
	caches *startCaches
}

// NewStartInformers returns the factory that does so until ctx, the term of leadership, ends.
func NewStartInformers(ctx context.Context, factory informers.SharedInformerFactory, opts StartOptions) *StartInformers {
	return &StartInformers{factory, &startCaches{ctx: ctx, opts: opts, caches: map[cache.Store]*startCache{}}}
}

// ForController implements app.ControllerInformers.
func (f *StartInformers) ForController(name string) informers.SharedInformerFactory {
	if !f.caches.opts.Waits(name) {
		return f.SharedInformerFactory
	}
	return wrappedFactory{f.SharedInformerFactory, func(informer cache.SharedIndexInformer, of typeOrResource) cache.SharedIndexInformer {
		return startedInformer{informer, f.caches.of(name, informer, of)}
	}}
}

// Start implements informers.SharedInformerFactory.
func (f *StartInformers) Start(stopCh <-chan struct{}) {
	f.caches.fenced()
	f.SharedInformerFactory.Start(stopCh)
}

// StartWithContext implements informers.SharedInformerFactory.
func (f *StartInformers) StartWithContext(ctx context.Context) {
	f.caches.fenced()
	f.SharedInformerFactory.StartWithContext(ctx)
}

// startCaches are the caches that controllers wait for before they start.
type startCaches struct {
	ctx  context.Context
	opts StartOptions

	mu     sync.Mutex
	caches map[cache.Store]*startCache
}

// of is the cache of an informer, for one more controller.
func (s *startCaches) of(controller string, informer cache.SharedIndexInformer, of typeOrResource) *startCache {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.caches[informer.GetStore()]
	if c == nil {
		c = &startCache{all: s, informer: informer, opened: make(chan struct{}), registered: make(chan struct{})}
		s.caches[informer.GetStore()] = c
		go c.run(of)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.controllers, controller) {
		c.controllers = append(c.controllers, controller)
	}
	return c
}

func (s *startCaches) list() []*startCache {
	s.mu.Lock()
	defer s.mu.Unlock()
	caches := make([]*startCache, 0, len(s.caches))
	for _, c := range s.caches {
		caches = append(caches, c)
	}
	return caches
}

// fenced returns when all fences are answered that were sent before the first lists, or after a while.
func (s *startCaches) fenced() {
	ctx, cancel := context.WithTimeout(s.ctx, startFences)
	defer cancel()
	for _, c := range s.list() {
		select {
		case <-c.registered:
		case <-ctx.Done():
			return
		}
	}
	s.opts.Fenced(ctx)
}

// Waits adds the controllers that have not started because a cache that has its first list is not proven yet.
func (f *StartInformers) Waits(out *stalenessz.Longest) {
	for _, c := range f.caches.list() {
		if c.open() {
			continue
		}
		c.mu.Lock()
		controllers, since, behind := slices.Clone(c.controllers), c.synced, c.behind
		c.mu.Unlock()
		if since.IsZero() || behind.Outcome == "" {
			continue
		}
		for _, controller := range controllers {
			if out.Of(controller).Wants(since) {
				out.Add(stalenessz.Wait{
					Controller: controller, Owner: "all", Resource: behind.Resource.GroupResource(), Since: since,
					Reason: stalenessz.ForStart, For: "a proof that the cache is as new as the start of leadership, before the controller starts", Why: behind.String(),
				})
			}
		}
	}
}

// startCache is a cache that controllers wait for.
type startCache struct {
	all      *startCaches
	informer cache.SharedIndexInformer
	// opened is closed once controllers may start on the cache, registered once a fence is sent, or cannot be.
	opened, registered chan struct{}

	mu          sync.Mutex
	controllers []string
	synced      time.Time       // when it had its first list
	behind      freshness.Proof // why controllers wait
}

func (c *startCache) open() bool {
	select {
	case <-c.opened:
		return true
	default:
		return false
	}
}

// both is closed once the cache is open and the checker is done.
func (c *startCache) both(checker cache.DoneChecker) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		for _, each := range []<-chan struct{}{c.opened, checker.Done()} {
			select {
			case <-each:
			case <-c.all.ctx.Done():
				return
			}
		}
		close(done)
	}()
	return done
}

// run opens the cache once it is proven, or has been waited for long enough. If the term ends first it stays closed.
func (c *startCache) run(of typeOrResource) {
	ctx := c.all.ctx
	gvr, err := c.register(ctx, of)
	close(c.registered)
	select {
	case <-c.informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		return
	}
	for asked := time.Now(); err != nil && !meta.IsNoMatchError(err) && time.Since(asked) < rvtracker.StartLimits.Unknown; {
		select {
		case <-time.After(time.Second):
			gvr, err = c.register(ctx, of)
		case <-ctx.Done():
			return
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "A cache is not proven as new as the start of leadership; controllers start on it without the proof", "controllers", c.names())
		close(c.opened)
		return
	}
	proof := c.prove(ctx, gvr.GroupResource())
	if ctx.Err() != nil {
		return
	}
	metrics.StartProof(gvr.GroupResource(), string(proof.Outcome))
	if !proof.Fresh() {
		klog.FromContext(ctx).Error(nil, "A cache is not proven as new as the start of leadership; controllers start on it without the proof",
			"resource", gvr.GroupResource(), "controllers", c.names(), "proof", proof.String())
	}
	close(c.opened)
}

// register has the prover look at the cache, and sends a fence.
func (c *startCache) register(ctx context.Context, of typeOrResource) (schema.GroupVersionResource, error) {
	gvr, err := of.resolve(c.all.opts.Mapper)
	if err != nil {
		return gvr, err
	}
	metrics.InitStartProofs(gvr.GroupResource(), string(freshness.Proven), string(freshness.Stale), string(freshness.Unknown))
	return gvr, c.all.opts.Register(ctx, gvr.GroupResource(), c.informer.GetStore())
}

// resolve asks the mapper for the resource, unless it is known.
func (of typeOrResource) resolve(mapper meta.RESTMapper) (schema.GroupVersionResource, error) {
	if of.objects == nil {
		return of.resource, nil
	}
	return resourceOf(of.objects, mapper)
}

func (c *startCache) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.controllers))
}

// prove returns once the cache is proven, nothing can ever be proven of it, or it has been waited for long enough.
func (c *startCache) prove(ctx context.Context, resource schema.GroupResource) freshness.Proof {
	logger := klog.FromContext(ctx)
	began, told := time.Now(), false
	c.mu.Lock()
	c.synced = began
	c.mu.Unlock()
	patience := &freshness.Patience{
		Limits: rvtracker.StartLimits, Since: began, Prove: c.all.opts.Prove, Cut: true,
		Pause: func(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) {
			c.all.opts.Wait(ctx, resource, proof)
			select {
			case <-ctx.Done():
			case <-time.After(retry): // At least, whatever wait says.
			}
		},
		Waiting: func(proof freshness.Proof) bool {
			if !told && proof.Outcome == freshness.Stale {
				told = true
				logger.Info("A cache is older than the start of leadership; controllers wait for it before they start", "resource", resource,
					"controllers", c.names(), "proof", proof.String())
			}
			c.mu.Lock()
			c.behind = proof
			c.mu.Unlock()
			return true
		},
	}
	proof := patience.ProvenWithin(ctx, resource, c.all.opts.Since)
	if proof.Fresh() {
		logger.V(2).Info("A cache is proven as new as the start of leadership", "resource", resource, "after", time.Since(c.all.opts.Since), "waited", time.Since(began))
	}
	return proof
}
