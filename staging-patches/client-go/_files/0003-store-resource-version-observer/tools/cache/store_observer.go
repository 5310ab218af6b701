// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import clientgofeaturegate "k8s.io/client-go/features"

// ResourceVersionObservable is implemented by what NewStore, NewIndexer and
// NewThreadSafeStore return, and so by the stores of informers.
type ResourceVersionObservable interface {
	// AddResourceVersionObserver has fn called with the store's resource version
	// each time a change, a batch of changes or a bookmark set it, unless it is
	// empty: on the goroutine that did so, in order if there is only one, as in
	// an informer, and before the informer notifies its handlers. The store is
	// not locked: fn may read it, and finds it at least that far. fn must be
	// quick, and must neither change the store nor call its informer.
	//
	// Observers may be added at any time and are called in the order of adding.
	// Without the AtomicFIFO feature gate they are never called: the store does
	// not know what it has reached (see LastStoreSyncResourceVersion).
	AddResourceVersionObserver(fn func(resourceVersion string))

	// AddReplaceObserver has fn called with the resource version of a list that
	// is about to replace the store's content, the first one too: on the
	// goroutine that does so, before anybody can read the new content. The store
	// is not locked: fn may read it. The other rules are those of
	// AddResourceVersionObserver, but an empty resource version is told, too.
	AddReplaceObserver(fn func(resourceVersion string))
}

// AddResourceVersionObserver implements ResourceVersionObservable.
func (c *cache) AddResourceVersionObserver(fn func(resourceVersion string)) {
	c.cacheStorage.(ResourceVersionObservable).AddResourceVersionObserver(fn)
}

// AddReplaceObserver implements ResourceVersionObservable.
func (c *cache) AddReplaceObserver(fn func(resourceVersion string)) {
	c.cacheStorage.(ResourceVersionObservable).AddReplaceObserver(fn)
}

// AddResourceVersionObserver implements ResourceVersionObservable.
func (c *threadSafeMap) AddResourceVersionObserver(fn func(resourceVersion string)) {
	if !clientgofeaturegate.FeatureGates().Enabled(clientgofeaturegate.AtomicFIFO) {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.observers = append(c.observers, fn)
}

// AddReplaceObserver implements ResourceVersionObservable.
func (c *threadSafeMap) AddReplaceObserver(fn func(resourceVersion string)) {
	if !clientgofeaturegate.FeatureGates().Enabled(clientgofeaturegate.AtomicFIFO) {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.replaceObservers = append(c.replaceObservers, fn)
}

// announceReplace must be called before the content is replaced, without the lock.
func (c *threadSafeMap) announceReplace(rv string) {
	c.lock.RLock()
	observers := c.replaceObservers
	c.lock.RUnlock()
	for _, fn := range observers {
		fn(rv)
	}
}

// unlockAndObserve ends a change that was to set the resource version to rv.
func (c *threadSafeMap) unlockAndObserve(rv string) {
	observers := c.observers
	if len(observers) > 0 && (rv == "" || rv != c.rv) { // The change has none, or an index function panicked.
		observers = nil
	}
	c.lock.Unlock()
	for _, fn := range observers {
		fn(rv)
	}
}
