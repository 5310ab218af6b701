// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// lagging implements consistency.Lagging.
type lagging struct {
	queue workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// keys are those that lag.
	keys map[string]*lag
}

// lag is of one key. It is another one each time that the key is found to lag.
type lag struct{ still func() bool }

// Lagging implements what consistency.NewLagging asks for.
func (s *Store) Lagging(informer cache.SharedInformer, keyOf func(obj any) string, queue workqueue.TypedRateLimitingInterface[string]) consistency.Lagging {
	if !s.Proves() {
		return nil
	}
	l := &lagging{queue: queue, keys: map[string]*lag{}}
	seen := func(obj any) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		l.seen(keyOf(obj))
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }, DeleteFunc: seen})
	return l
}

// Lags implements consistency.Lagging. A key for which anything else has failed is left to its queue, as on upstream: each time that it came back besides it
// would fail once more, and be dropped by the queue sooner, or, if the queue was told to forget, be tried without end.
func (l *lagging) Lags(key string, lags bool, still func() bool) bool {
	l.mu.Lock()
	notes := lags && (l.keys[key] != nil || l.queue.NumRequeues(key) == 0)
	if notes {
		l.keys[key] = &lag{still}
	} else {
		delete(l.keys, key)
	}
	l.mu.Unlock()
	if notes {
		l.seen(key)
	}
	return lags
}

// seen puts the key back on the queue if it has lagged, and the cache has all that it lacked: while one object of several is missing, a try
// would fail, and be one of those after which the queue drops it. What failed because of the lag counts no more.
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
		l.queue.Forget(key)
		l.queue.Add(key)
	}
}
