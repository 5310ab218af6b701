// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Handlers knows how far each event handler of the informers that it was shown has been handed events: a store can be fresh
// while a handler of its informer still works off a queue. It keeps one entry for each informer, as their
// factories do.
type Handlers struct {
	mu        sync.Mutex
	informers map[cache.Store]*handledInformer
}

// NewHandlers knows no informers yet.
func NewHandlers() *Handlers {
	return &Handlers{informers: map[cache.Store]*handledInformer{}}
}

// informer returns the informer with handlers that tell how far they are. Handlers that were added before are
// not known.
func (h *Handlers) informer(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	if known, ok := informer.(*handledInformer); ok {
		return known
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.informers[informer.GetStore()]
	if known == nil {
		known = &handledInformer{SharedIndexInformer: informer, deliveries: map[*stalenessmonitor.Delivery]cache.ResourceEventHandlerRegistration{}}
		h.informers[informer.GetStore()] = known
		if store, ok := informer.GetStore().(cache.ResourceVersionObservable); ok {
			store.AddReplaceObserver(known.listed)
		}
	}
	return known
}

// Deliveries are those of the handlers of a store's informer. It is safe to call at any time, and may be nil.
func (h *Handlers) Deliveries(store cache.Store) []*stalenessmonitor.Delivery {
	h.mu.Lock()
	known := h.informers[store]
	h.mu.Unlock()
	if known == nil {
		return nil
	}
	if all := known.all.Load(); all != nil {
		return *all
	}
	return nil
}

// handledInformer notes how far each of its handlers is.
type handledInformer struct {
	cache.SharedIndexInformer

	mu sync.Mutex
	// deliveries are there from before their handlers are added, so that none of these misses a list.
	deliveries map[*stalenessmonitor.Delivery]cache.ResourceEventHandlerRegistration
	// all are the deliveries, not to be changed.
	all atomic.Pointer[[]*stalenessmonitor.Delivery]
}

// AddEventHandler implements cache.SharedInformer.
func (i *handledInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(handler, i.SharedIndexInformer.AddEventHandler)
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *handledInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(handler, func(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
		return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
	})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *handledInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(handler, func(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
		return i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	})
}

func (i *handledInformer) add(handler cache.ResourceEventHandler, add func(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)) (cache.ResourceEventHandlerRegistration, error) {
	delivery := stalenessmonitor.NewDelivery(addedBy())
	i.change(func() { i.deliveries[delivery] = nil })
	registration, err := add(tellingHandler{handler, delivery})
	i.change(func() {
		if i.deliveries[delivery] = registration; err != nil {
			delete(i.deliveries, delivery)
		}
	})
	return registration, err
}

// listed notes that a list replaces the store.
func (i *handledInformer) listed(resourceVersion string) {
	if all := i.all.Load(); all != nil {
		for _, delivery := range *all {
			delivery.Listed(resourceVersion)
		}
	}
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *handledInformer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	i.change(func() {
		maps.DeleteFunc(i.deliveries, func(_ *stalenessmonitor.Delivery, of cache.ResourceEventHandlerRegistration) bool {
			return of == registration
		})
	})
	return i.SharedIndexInformer.RemoveEventHandler(registration)
}

func (i *handledInformer) change(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
	all := slices.Collect(maps.Keys(i.deliveries))
	i.all.Store(&all)
}

// tellingHandler tells how far it is, once the handler in it has returned.
type tellingHandler struct {
	cache.ResourceEventHandler
	delivery *stalenessmonitor.Delivery
}

// OnAdd implements cache.ResourceEventHandler.
func (h tellingHandler) OnAdd(object any, initial bool) {
	h.ResourceEventHandler.OnAdd(object, initial)
	if !initial { // The list has no order: the bookmark at its end tells.
		h.tell(object)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h tellingHandler) OnUpdate(was, object any) {
	h.ResourceEventHandler.OnUpdate(was, object)
	h.tell(object)
}

// OnDelete implements cache.ResourceEventHandler.
func (h tellingHandler) OnDelete(object any) {
	h.ResourceEventHandler.OnDelete(object)
	h.tell(object)
}

func (h tellingHandler) tell(object any) {
	if o, ok := object.(metav1.Object); ok { // A tombstone is none; the bookmark after the list comes in its place.
		h.delivery.Event(o.GetResourceVersion())
	}
}

// GetBookmarkFunc implements cache.BookmarkHandler.
func (h tellingHandler) GetBookmarkFunc() func(resourceVersion string) {
	var inner func(string)
	if b, ok := h.ResourceEventHandler.(cache.BookmarkHandler); ok {
		inner = b.GetBookmarkFunc()
	}
	if inner == nil {
		return h.delivery.Bookmark
	}
	return func(resourceVersion string) {
		inner(resourceVersion)
		h.delivery.Bookmark(resourceVersion)
	}
}

// between are the functions through which a handler may be added.
var between = []string{"k8s.io/client-go/", "github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers.(*handledInformer).", "github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers.observedInformer.",
	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers.startedInformer."}

// addedBy names a handler by the package that adds it, such as "tainteviction" or "volume/attachdetach". There are
// as many names as packages that add handlers, and they stay the same from one start to the next.
func addedBy() string {
	stack := make([]uintptr, 16)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	for {
		frame, more := frames.Next()
		if frame.Function != "" && !slices.ContainsFunc(between, func(prefix string) bool { return strings.HasPrefix(frame.Function, prefix) }) {
			return packageName(frame.Function)
		}
		if !more {
			return "unknown"
		}
	}
}

// packageName is the package of a function, without what those of controllers have in common.
func packageName(function string) string {
	dir, last := "", function
	if i := strings.LastIndexByte(function, '/'); i >= 0 {
		dir, last = function[:i+1], function[i+1:]
	}
	last, _, _ = strings.Cut(last, ".")
	name := dir + last
	for _, prefix := range []string{"k8s.io/", "kubernetes/", "pkg/", "controller/"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

var _ cache.BookmarkHandler = tellingHandler{}
