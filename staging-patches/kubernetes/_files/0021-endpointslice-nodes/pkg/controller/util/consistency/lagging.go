// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Lagging are the keys on a queue that were put off because the cache does not show the controller's own writes yet. The queue tries
// them again with backoff, for up to 1000 s, or drops them after some tries. They come back when the cache shows what it lacked.
type Lagging struct {
	add func(key string)

	mu   sync.Mutex
	keys map[string]bool
}

// NewLagging has informer tell of objects, of each of which keyOf returns the key, or "". It returns nil, which puts nothing back, if the
// store cannot tell what is fresh.
func NewLagging(store ConsistencyStore, informer cache.SharedInformer, keyOf func(obj interface{}) string, add func(key string)) *Lagging {
	if !Proves(store) {
		return nil
	}
	l := &Lagging{add: add, keys: map[string]bool{}}
	seen := func(obj interface{}) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		l.seen(keyOf(obj))
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj interface{}) { seen(obj) }, DeleteFunc: seen})
	return l
}

// Lags notes whether the cache lags for the key, and returns it. still reads the cache once more: it may have caught up before that
// was noted.
func (l *Lagging) Lags(key string, lags bool, still func() bool) bool {
	if l == nil {
		return lags
	}
	l.mu.Lock()
	if lags {
		l.keys[key] = true
	} else {
		delete(l.keys, key)
	}
	l.mu.Unlock()
	if lags && !still() {
		l.seen(key)
	}
	return lags
}

// seen puts the key back if it is one of these.
func (l *Lagging) seen(key string) {
	l.mu.Lock()
	lagged := l.keys[key]
	delete(l.keys, key)
	l.mu.Unlock()
	if lagged {
		l.add(key)
	}
}
