// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	goerrors "errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// heldItem leaves an item, and what its queue knows of failures, alone: the guard puts it back.
const heldItem workQueueItemAction = -1

var errHeld = goerrors.New("the graph is not proven to have all dependents")

// newGuard returns nil if nobody can tell whether the graph is complete.
func (gb *GraphBuilder) newGuard() consistencyutil.GraphGuard {
	store, ok := consistencyutil.NewIfProvided("garbagecollector", nil).(consistencyutil.GraphStore)
	if !ok {
		return nil
	}
	return store.GuardGraph(consistencyutil.Graph{
		Mark:         func(reached func()) { gb.graphChanges.Add(&event{reached: reached}) },
		TrustAbsence: gb.absentOwnerCache.trust,
		Monitored: func() []schema.GroupVersionResource {
			gb.monitorLock.RLock()
			defer gb.monitorLock.RUnlock()
			return slices.Collect(maps.Keys(gb.monitors))
		},
	})
}

// followed is the handler to add for the resource.
func (gb *GraphBuilder) followed(resource schema.GroupVersionResource, kind schema.GroupVersionKind, store cache.Store, handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	if gb.guard == nil {
		return handler
	}
	mapping, err := gb.restMapper.RESTMapping(kind.GroupKind(), kind.Version)
	namespaced := err != nil || mapping.Scope == nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace // If it is unknown, it counts for every owner.
	return gb.guard.Follow(consistencyutil.GraphResource{GroupVersionResource: resource, Kind: kind.GroupKind(), Namespaced: namespaced}, store, handler)
}

// held reports whether dependents of the owner may be missing from the graph, as it is read after this call. The owner comes back then, unless one that
// blocks it has failed: another try would double that one's backoff. If it waits for nothing else, its owners try now, and not at its end, what has not failed.
func (gb *GraphBuilder) held(owner *node, blocking bool, queue workqueue.TypedRateLimitingInterface[*node]) bool {
	if gb.guard == nil {
		return false
	}
	kind := schema.FromAPIVersionAndKind(owner.identity.APIVersion, owner.identity.Kind).GroupKind()
	name := types.NamespacedName{Namespace: owner.identity.Namespace, Name: owner.identity.Name}
	proven := gb.guard.Proven(consistencyutil.GraphOwner{NamespacedName: name, Kind: kind, UID: owner.identity.UID, Blocking: blocking}, func() {
		if !blocking || !owner.blockedByFailed(queue) {
			queue.Add(owner)
		}
	})
	if !proven && (!blocking || len(owner.blockingDependents()) == 0) && !owner.held.Swap(true) {
		for _, ref := range owner.getOwners() {
			if of, found := gb.uidToNode.Read(ref.UID); found && of.isDeletingDependents() && slices.ContainsFunc(of.blockingDependents(), func(n *node) bool { return !n.isBeingDeleted() }) {
				gb.attemptToDelete.Add(of)
			}
		}
	}
	return !proven
}

// trust has the cache empty, and in use or out of use.
func (c *ReferenceCache) trust(trusted bool) {
	c.cache.Clear()
	c.distrusted.Store(!trusted)
}
