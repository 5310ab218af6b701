// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// ExactPass, which a provider's pass may implement, proves what was read as of when the reading began; ProvePass does as of shortly before.
type ExactPass interface {
	ProveExact(ctx context.Context, action string, resources ...schema.GroupResource) error
}

// Dependents are the caches of what may use an object. A controller takes the finalizer off once they show nothing that does.
type Dependents struct {
	store     ConsistencyStore
	resources []schema.GroupResource
}

// NewDependents asks the provider for a store of the controller, which puts the keys of objects that wait back on the queue.
func NewDependents(controller string, add func(key string), caches map[schema.GroupResource]LastSyncRVGetter) Dependents {
	d := Dependents{store: NewIfProvided(controller, nil)}
	OnReady(d.store, add)
	d.resources = slices.SortedFunc(maps.Keys(caches), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	for _, resource := range d.resources {
		Follow(d.store, resource, caches[resource])
	}
	return d
}

// Read must be called once the object with this key was seen to be deleted, and before its dependents are looked up with the
// context that it returns.
func (d Dependents) Read(ctx context.Context, key string) context.Context {
	return WithReading(ctx, d.store, key)
}

// Proven reports whether what was looked up had all dependents that there were at Read, or that nobody can tell. If not, the key
// comes back to the queue when it may be worth trying again.
func (d Dependents) Proven(ctx context.Context) bool {
	p, ok := ctx.Value(passKey{}).(ExactPass)
	if !ok {
		return true
	}
	err := p.ProveExact(ctx, "", d.resources...)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("The finalizer stays, as the object may have dependents that the cache lacks", "reason", err)
	}
	return err == nil
}

// Forget has the queue forget the failures of the object with this key, unless its finalizer waits. One that was taken off unproven is not taken off again.
func (d Dependents) Forget(key string, forget func(key string)) {
	Forget(d.store, key, func(key string) { d.Gone(key); forget(key) })
}

// Gone forgets what the object with this key waits for.
func (d Dependents) Gone(key string) { ForgetReading(d.store, key) }

// OnlyTo has a patch spare another object of the same name, if the store can tell what is fresh.
func (d Dependents) OnlyTo(object metav1.Object, metadata map[string]interface{}) map[string]interface{} {
	if Proves(d.store) {
		metadata["uid"] = object.GetUID()
	}
	return metadata
}
