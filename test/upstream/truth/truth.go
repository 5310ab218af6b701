// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truth proves caches fresh in upstream's unit tests, which have no apiserver: the prover is the product's, and asks an
// apiserver that has just what the caches have. hack/upstream-unit-gates.go.tmpl uses it.
package truth

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// Prover proves the caches of one controller of a test.
type Prover struct {
	tracker *rvtracker.Tracker
	prover  *freshness.Prover
	server  server
}

var (
	_ consistencystore.Prover = (*Prover)(nil)
	_ consistencystore.Caches = (*Prover)(nil)
)

// NewProver returns a prover of caches that the tracker follows. Nothing limits its requests: tests reconcile as fast as they can.
func NewProver(tracker *rvtracker.Tracker) (*Prover, error) {
	p := &Prover{tracker: tracker}
	const unlimited = 1 << 30
	var err error
	p.prover, err = freshness.New(freshness.Options{Config: &rest.Config{Host: "http://truth", Transport: &p.server}, QPS: unlimited, Burst: unlimited})
	return p, err
}

// Register implements consistencystore.Caches.
func (p *Prover) Register(ctx context.Context, resource schema.GroupResource, store cache.Store) error {
	gvr := resource.WithVersion("v1") // The server asks for none in particular.
	p.server.serve(resource, store)
	if p.prover.Track(gvr, store, p.tracker.Register(resource, store)) {
		_, _ = p.prover.Fence(ctx, gvr) // As the product does; a proof says what failed.
	}
	return nil
}

// Registered implements consistencystore.Caches.
func (p *Prover) Registered(resource schema.GroupResource) bool {
	_, known := p.prover.Lookup(resource)
	return known
}

// Prove implements consistencystore.Prover.
func (p *Prover) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	gvr, _ := p.prover.Lookup(resource)
	proof, _ := p.prover.ProveSoon(ctx, gvr, asOf) // Its error is the proof's, too.
	return proof
}

// Known implements consistencystore.Prover.
func (p *Prover) Known(resource schema.GroupResource) (freshness.Proof, bool) {
	gvr, _ := p.prover.Lookup(resource)
	return p.prover.Known(gvr)
}

// Wait implements consistencystore.Prover.
func (p *Prover) Wait(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if p.prover.WaitFor(ctx, resource, proof.ResourceVersion) != nil {
		<-ctx.Done()
	}
}

// Wrote implements consistencystore.Prover.
func (p *Prover) Wrote(resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	gvr, _ := p.prover.Lookup(resource)
	p.prover.Wrote(context.Background(), gvr, rv, sent)
}

// Cache is a store whose version never falls, and is 1 before it has one. Tests fill stores by hand, with versions in any order or
// without any; an informer's store goes back only if an apiserver that lags has answered a relist.
type Cache struct {
	cache.Indexer
	mu      sync.Mutex
	highest string
}

// NewCache returns the cache of a store.
func NewCache(store cache.Indexer) *Cache { return &Cache{Indexer: store, highest: "1"} }

// LastStoreSyncResourceVersion implements cache.Store.
func (c *Cache) LastStoreSyncResourceVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rv := c.Indexer.LastStoreSyncResourceVersion(); freshness.Less(c.highest, rv) {
		c.highest = rv
	}
	return c.highest
}

var _ cache.ResourceVersionObservable = (*Cache)(nil)

// AddResourceVersionObserver implements cache.ResourceVersionObservable.
func (c *Cache) AddResourceVersionObserver(fn func(resourceVersion string)) {
	c.Indexer.(cache.ResourceVersionObservable).AddResourceVersionObserver(func(string) { fn(c.LastStoreSyncResourceVersion()) })
}

// AddReplaceObserver implements cache.ResourceVersionObservable.
func (c *Cache) AddReplaceObserver(fn func(resourceVersion string)) {
	c.Indexer.(cache.ResourceVersionObservable).AddReplaceObserver(fn)
}
