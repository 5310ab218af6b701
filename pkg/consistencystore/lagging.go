// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// lagging implements consistency.Lagging.
type lagging struct {
	add func(key string)

	mu sync.Mutex
	// keys are those that lag.
	keys map[string]*lag
}

// lag is of one key. It is another one each time that the key is found to lag.
type lag struct{ still func() bool }

// Lagging implements what consistency.NewLagging asks for.
func (s *Store) Lagging(informer cache.SharedInformer, keyOf func(obj any) string, add func(key string)) consistency.Lagging {
	if !s.Proves() {
		return nil
	}
	l := &lagging{add: add, keys: map[string]*lag{}}
	seen := func(obj any) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		l.seen(keyOf(obj))
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }, DeleteFunc: seen})
	return l
}

// Lags implements consistency.Lagging.
func (l *lagging) Lags(key string, lags bool, still func() bool) bool {
	l.mu.Lock()
	if lags {
		l.keys[key] = &lag{still}
	} else {
		delete(l.keys, key)
	}
	l.mu.Unlock()
	if lags {
		l.seen(key)
	}
	return lags
}

// seen puts the key back on the queue if it has lagged, and the cache has all that it lacked: while one object of several is missing, a try
// would fail, and be one of those after which the queue drops it.
func (l *lagging) seen(key string) {
	l.mu.Lock()
	lags := l.keys[key]
	l.mu.Unlock()
	if lags == nil || lags.still() { // Without the lock: it looks at all objects of the namespace.
		return
	}
	l.mu.Lock()
	last := l.keys[key] == lags
	if last {
		delete(l.keys, key)
	}
	l.mu.Unlock()
	if last {
		l.add(key)
	}
}
