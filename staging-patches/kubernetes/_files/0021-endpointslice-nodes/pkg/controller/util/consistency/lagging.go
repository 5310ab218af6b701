// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import "k8s.io/client-go/tools/cache"

// Lagging are the keys on a queue that were put off because the cache does not show the controller's own writes yet. The queue tries
// them again with backoff, for up to 1000 s, or drops them after some tries. They come back when the cache shows what it lacked.
type Lagging interface {
	// Lags notes whether the cache lags for the key, and returns it. still reads the cache once more: it may have caught up before
	// that was noted.
	Lags(key string, lags bool, still func() bool) bool
}

// LaggingStore is optionally implemented by a provider's store.
type LaggingStore interface {
	// Lagging has informer tell of objects, of each of which keyOf returns the key, or "". It returns nil, which puts nothing back, if
	// the store cannot tell what is fresh.
	Lagging(informer cache.SharedInformer, keyOf func(obj interface{}) string, add func(key string)) Lagging
}

// NewLagging returns the store's, or nil if it has none.
func NewLagging(store ConsistencyStore, informer cache.SharedInformer, keyOf func(obj interface{}) string, add func(key string)) Lagging {
	if s, ok := store.(LaggingStore); ok {
		return s.Lagging(informer, keyOf, add)
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
