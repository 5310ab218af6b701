// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// What follows is optionally implemented by a provider's store.
type (
	// ReadingStore can tell of single objects' values whether they are counted by fresh caches; see Follow, WithReading and ForgetReading.
	ReadingStore interface {
		Follow(resource schema.GroupResource, cache LastSyncRVGetter)
		Reading(key string) Pass
		ForgetReading(key string)
	}
	// FirstPass is a pass that ProveFirst asks.
	FirstPass interface {
		ProveFirst(ctx context.Context, action string, resources ...schema.GroupResource) error
	}
	// UndecidedStore can tell whether an object waits, and nothing was written for it since it was last read; see Forget.
	UndecidedStore interface{ Undecided(key string) bool }
	// HandledInformer knows up to which version its event handlers have been told; see Handled.
	HandledInformer interface{ Handled() LastSyncRVGetter }
	// ListsStore knows of lists that replace what a cache has; see AfterLists.
	ListsStore interface {
		AfterLists(cache cache.Store, do func()) func(rv string)
	}
	// WritingPass is a pass that Wrote tells.
	WritingPass interface{ Wrote(failed bool) }
)

// Follow tells the store of a cache that the controller reads, besides those that it was made with.
func Follow(store ConsistencyStore, resource schema.GroupResource, cache LastSyncRVGetter) {
	if s, ok := store.(ReadingStore); ok {
		s.Follow(resource, cache)
	}
}

// Handled is the cache of an informer for those who read what its event handlers keep: its version is that up to which all of them have been told, if the
// informer knows, and otherwise that of its store.
func Handled(informer cache.SharedIndexInformer) LastSyncRVGetter {
	if i, ok := informer.(HandledInformer); ok {
		return i.Handled()
	}
	return informer.GetStore()
}

// AfterLists returns the BookmarkFunc of an event handler that calls do once the handler has been told all of a list that replaced what the cache had: of
// what was made and gone in between, or changed, it was told nothing. It is nil if the store cannot tell.
func AfterLists(store ConsistencyStore, cache cache.Store, do func()) (bookmark func(resourceVersion string)) {
	if s, ok := store.(ListsStore); ok {
		return s.AfterLists(cache, do)
	}
	return nil
}

// WithReading has ProvePass ask the store about what is read from its caches after this call, for the object with this key on the controller's queue. That key
// comes back (OnReady) when it may be worth trying again what was refused. No value is refused without end.
func WithReading(ctx context.Context, store ConsistencyStore, key string) context.Context {
	if s, ok := store.(ReadingStore); ok {
		return WithPass(ctx, s.Reading(key))
	}
	return ctx
}

// ProveFirst is ProvePass for a value that there is none of yet, and that must not be missing for long.
func ProveFirst(ctx context.Context, action string, resources ...schema.GroupResource) error {
	if p, ok := ctx.Value(passKey{}).(FirstPass); ok {
		return p.ProveFirst(ctx, action, resources...)
	}
	return nil
}

// Forget has the queue forget the failures of the object with this key, as none was met when it was last read. It does not if what
// would have been written waits: upstream would have written it, and may have met another one.
func Forget(store ConsistencyStore, key string, forget func(key string)) {
	if s, ok := store.(UndecidedStore); ok && s.Undecided(key) {
		return
	}
	forget(key)
}

// Wrote says that a write with this context was made, or failed. After a failure the queue's backoff brings the object back, and
// nothing that waits does, unless Forget is called.
func Wrote(ctx context.Context, failed bool) {
	if p, ok := ctx.Value(passKey{}).(WritingPass); ok {
		p.Wrote(failed)
	}
}

// ForgetReading forgets what the object with this key waits for, as there is no such object any more.
func ForgetReading(store ConsistencyStore, key string) {
	if s, ok := store.(ReadingStore); ok {
		s.ForgetReading(key)
	}
}
