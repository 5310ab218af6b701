// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// cacheView is what the prover needs of a cache of one whole collection. All methods
// may be called concurrently and, but for WaitFor, must return at once and not call
// the prover.
type cacheView interface {
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

// storeView is an informer's store, and what waits for it.
type storeView struct {
	store cache.Store
	wait  func(ctx context.Context, rv string) error
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
		visit(cache.MetaObjectToName(m).String(), m.GetUID(), m.GetResourceVersion())
	}
}

func (v *storeView) WaitFor(ctx context.Context, rv string) error { return v.wait(ctx, rv) }
