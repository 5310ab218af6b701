// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package graphguard

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// followed is a resource whose events the graph gets.
type followed struct {
	consistency.GraphResource
	guard *Guard
	store cache.Store
	// asking is what is known of it; guard.mu protects it.
	asking asking

	mu sync.Mutex
	// position is the version up to which everything was handed to the graph.
	position string
	// list is the version of one that replaces the store's content, and is not handed over yet. Its objects come in any order.
	list string
	// moved is closed when there is something new to hand over, if anybody waits for that.
	moved chan struct{}
}

// custom reports whether the resource may be a custom one, or an aggregated API's.
func (f *followed) custom() bool { return !scheme.Scheme.IsGroupRegistered(f.Group) }

// Follow implements consistency.GraphGuard. A store that does not tell of lists is never doubted.
func (g *Guard) Follow(resource consistency.GraphResource, store cache.Store, handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	g.mu.Lock()
	f := g.followed[resource.GroupVersionResource]
	known := f != nil && f.store == store
	if !known {
		f = &followed{GraphResource: resource, guard: g, store: store}
		g.followed[resource.GroupVersionResource] = f
	}
	g.mu.Unlock()
	if observed, ok := store.(cache.ResourceVersionObservable); ok && !known {
		observed.AddReplaceObserver(f.replacing)
	}
	return &handing{ResourceEventHandler: handler, f: f}
}

// replacing notes that a list replaces the store's content.
func (f *followed) replacing(rv string) {
	if rv == "" {
		return
	}
	f.mu.Lock()
	f.list = rv
	f.mu.Unlock()
	if f.store.LastStoreSyncResourceVersion() != "" {
		f.guard.doubt(f, rv)
	}
}

// handed notes that an event was handed to the graph.
func (f *followed) handed(object any) {
	o, ok := object.(metav1.Object)
	if !ok {
		return // A tombstone. The bookmark after the list comes in its place.
	}
	rv := o.GetResourceVersion()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == "" && !freshness.Passed(f.position, rv) {
		f.position = rv
		f.tell()
	}
}

// bookmark notes that everything up to rv was handed to the graph.
func (f *followed) bookmark(rv string) {
	f.mu.Lock()
	// The first one that a handler gets ends what it was given when it was added, which may be newer than the list.
	list := f.list
	listed := rv == list || f.position == "" && freshness.Less(list, rv)
	f.position = rv
	if listed {
		f.list = ""
	}
	f.tell()
	f.mu.Unlock()
	if listed {
		f.guard.graph.Mark(func() { f.guard.trust(f, list) })
	}
}

// tell has those look again who wait. mu must be held.
func (f *followed) tell() {
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// reach waits until everything up to rv is in the graph, and reports whether it is in time.
func (f *followed) reach(ctx context.Context, rv string) bool {
	ctx, cancel := context.WithTimeout(ctx, deliverWait)
	defer cancel()
	for {
		f.mu.Lock()
		reached := f.list == "" && freshness.Passed(f.position, rv)
		if !reached && f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mu.Unlock()
		if reached {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-moved:
		}
	}
	worked := make(chan struct{})
	f.guard.graph.Mark(func() { close(worked) })
	select {
	case <-ctx.Done():
		return false
	case <-worked:
		return true
	}
}

// handing is a handler that notes what it has handed to the graph.
type handing struct {
	cache.ResourceEventHandler
	f *followed
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handing) OnAdd(object any, initial bool) {
	h.ResourceEventHandler.OnAdd(object, initial)
	if !initial { // The list has no order: the bookmark at its end tells.
		h.f.handed(object)
	}
}

// OnUpdate implements cache.ResourceEventHandler. A relist brings an object that has taken the name of another as a change of that one:
// to the graph, which goes by UID, one is gone and another has come. Otherwise it would keep the one that is gone, and what depends
// on it would stay.
func (h *handing) OnUpdate(was, object any) {
	if gone, replaced := replacedBy(was, object); replaced {
		h.ResourceEventHandler.OnDelete(was)
		h.f.guard.forget(gone)
		h.ResourceEventHandler.OnAdd(object, false)
	} else {
		h.ResourceEventHandler.OnUpdate(was, object)
	}
	h.f.handed(object)
}

// replacedBy returns the UID of the object that was, and whether the other is not the same one.
func replacedBy(was, object any) (types.UID, bool) {
	before, ok := was.(metav1.Object)
	now, too := object.(metav1.Object)
	if !ok || !too {
		return "", false
	}
	return before.GetUID(), before.GetUID() != now.GetUID()
}

// OnDelete implements cache.ResourceEventHandler.
func (h *handing) OnDelete(object any) {
	h.ResourceEventHandler.OnDelete(object)
	h.f.handed(object)
	if o, ok := object.(metav1.Object); ok {
		h.f.guard.forget(o.GetUID())
	}
}

// GetBookmarkFunc implements cache.BookmarkHandler.
func (h *handing) GetBookmarkFunc() func(resourceVersion string) { return h.f.bookmark }

// asking is what is known of a resource that owners wait for.
type asking struct {
	running bool
	// last is when it was last asked about, ended when that was answered; failing, unless zero, since when it could not be proven.
	last, ended, failing time.Time
	// stale, unless zero, is when its cache was last shown stale, and not proven since.
	stale time.Time
	proof freshness.Proof
	// behind means that its cache is fresh, but the graph has not all of it.
	behind bool
}
