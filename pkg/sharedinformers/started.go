// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// startedInformer is an informer that has synced, as those see it who ask for that before they start, once its cache
// is proven as new as the start of leadership, or has been waited for long enough. Its handlers get events before that.
type startedInformer struct {
	cache.SharedIndexInformer
	cache *startCache
}

// HasSynced implements cache.SharedInformer.
func (i startedInformer) HasSynced() bool { return i.cache.open() }

// HasSyncedChecker implements cache.SharedInformer.
func (i startedInformer) HasSyncedChecker() cache.DoneChecker {
	return startChecker{i.SharedIndexInformer.HasSyncedChecker(), i.cache.opened}
}

// GetController implements cache.SharedInformer.
func (i startedInformer) GetController() cache.Controller {
	return startedController{i.SharedIndexInformer.GetController(), i}
}

// AddEventHandler implements cache.SharedInformer.
func (i startedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.registered(i.SharedIndexInformer.AddEventHandler(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i startedInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.registered(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync))
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i startedInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.registered(i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options))
}

func (i startedInformer) registered(r cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err != nil {
		return r, err
	}
	return startedRegistration{r, i.cache}, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i startedInformer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	if r, ok := registration.(startedRegistration); ok {
		registration = r.ResourceEventHandlerRegistration
	}
	return i.SharedIndexInformer.RemoveEventHandler(registration)
}

// startedController has synced when its informer has.
type startedController struct {
	cache.Controller
	informer startedInformer
}

// HasSynced implements cache.Controller.
func (c startedController) HasSynced() bool { return c.informer.HasSynced() }

// HasSyncedChecker implements cache.Controller.
func (c startedController) HasSyncedChecker() cache.DoneChecker { return c.informer.HasSyncedChecker() }

// startedRegistration has synced when its handler was handed the first list and the informer has.
type startedRegistration struct {
	cache.ResourceEventHandlerRegistration
	cache *startCache
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r startedRegistration) HasSynced() bool {
	return r.cache.open() && r.ResourceEventHandlerRegistration.HasSynced()
}

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r startedRegistration) HasSyncedChecker() cache.DoneChecker {
	inner := r.ResourceEventHandlerRegistration.HasSyncedChecker()
	return startChecker{inner, r.cache.both(inner)}
}

// startChecker is done when the cache is open.
type startChecker struct {
	cache.DoneChecker
	done <-chan struct{}
}

// Done implements cache.DoneChecker.
func (c startChecker) Done() <-chan struct{} { return c.done }
