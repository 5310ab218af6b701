// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// CacheView is what the prover needs of a cache of one whole collection. All methods
// may be called concurrently and, but for WaitFor, must return at once and not call
// the prover.
type CacheView interface {
	// ResourceVersion that the cache has reached: it holds the effect of every change up
	// to it. Empty before the first sync.
	ResourceVersion() string
	// WaitFor returns nil once the cache has passed rv, else an error, at the latest when
	// ctx ends.
	WaitFor(ctx context.Context, rv string) error
	// Len is the number of objects.
	Len() int
	// Each calls visit for every object, by "namespace/name" or "name".
	Each(visit func(key string, uid types.UID, rv string))
}

// Store is the part of client-go's cache.Store and cache.Indexer that a StoreView needs.
type Store interface {
	LastStoreSyncResourceVersion() string
	List() []any
	ListKeys() []string
}

var _ Store = cache.Store(nil)

// pollInterval is how often a StoreView without a wait function looks at its store.
const pollInterval = 5 * time.Millisecond

type storeView struct {
	store Store
	wait  func(ctx context.Context, rv string) error
}

// StoreView makes a CacheView of an informer's store. wait is WaitFor, such as
// rvtracker.Source.Wait; if nil the store is polled every 5 ms while somebody waits.
func StoreView(store Store, wait func(ctx context.Context, rv string) error) CacheView {
	return &storeView{store: store, wait: wait}
}

func (v *storeView) ResourceVersion() string { return v.store.LastStoreSyncResourceVersion() }

func (v *storeView) Len() int { return len(v.store.ListKeys()) }

func (v *storeView) Each(visit func(key string, uid types.UID, rv string)) {
	for _, obj := range v.store.List() {
		m, err := meta.Accessor(obj)
		if err != nil {
			// It cannot be in a list of the server under any key: an empty one never matches.
			visit("", "", "")
			continue
		}
		visit(objectKey(m.GetNamespace(), m.GetName()), m.GetUID(), m.GetResourceVersion())
	}
}

func (v *storeView) WaitFor(ctx context.Context, rv string) error {
	if v.wait != nil {
		return v.wait(ctx, rv)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if Passed(v.ResourceVersion(), rv) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for resource version %s: %w", rv, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
