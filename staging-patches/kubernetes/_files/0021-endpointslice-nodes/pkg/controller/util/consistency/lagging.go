// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Lagging are the keys on a queue that were put off because the cache does not show the controller's own writes yet. The queue tries them again with backoff,
// for up to 1000 s, or drops them after some tries. They come back when the cache shows what it lacked, unless anything else has failed for them.
type Lagging interface {
	// Lags notes, and returns, whether the cache lags for the key. still reads the cache once more: it may have caught up meanwhile.
	Lags(key string, lags bool, still func() bool) bool
}

// LaggingStore is optionally implemented by a provider's store.
type LaggingStore interface {
	// Lagging has informer tell of objects; keyOf is the key of one on queue, or "". Without proofs it returns nil, which puts nothing back.
	Lagging(informer cache.SharedInformer, keyOf func(obj interface{}) string, queue workqueue.TypedRateLimitingInterface[string]) Lagging
}

// NewLagging returns the store's, or nil if it has none.
func NewLagging(store ConsistencyStore, informer cache.SharedInformer, keyOf func(obj interface{}) string, queue workqueue.TypedRateLimitingInterface[string]) Lagging {
	if s, ok := store.(LaggingStore); ok {
		return s.Lagging(informer, keyOf, queue)
	}
	return nil
}

// Lags is l.Lags; without l the cache lags as it says, and nothing comes back.
func Lags(l Lagging, key string, lags bool, still func() bool) bool {
	if l == nil {
		return lags
	}
	return l.Lags(key, lags, still)
}
