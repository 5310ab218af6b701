// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

var (
	replicaSetResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	revisionResource   = schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
)

// owned are the objects of one resource that an owner controls, a Deployment's pods through its ReplicaSets, and how many there were when the
// cache was at version or later.
type owned struct {
	cache   consistency.LastSyncRVGetter
	version string
	number  int
	// wrote returns the object that the reconcile itself has written last, if any: it has read that, too. nil: it writes none. before are the objects that
	// there were before.
	wrote  func() objectVersion
	before map[types.UID]bool
	// list reads them from the cache, and by has the UIDs of the objects that control them.
	list func() ([]any, error)
	by   map[types.UID]bool
}

// ownPods are the pods that an owner controls itself, nil if that is unknown.
func (s *Store) ownPods(versions map[schema.GroupResource]string, namespace, kind string, owner metav1.Object) *owned {
	indexer, ok := s.caches[podResource].(cache.Indexer)
	if !ok {
		return nil
	}
	index := controller.PodControllerIndexKey(namespace, &metav1.OwnerReference{Kind: kind, Name: owner.GetName(), UID: owner.GetUID()})
	keys, err := indexer.IndexKeys(controller.PodControllerIndex, index)
	if err != nil {
		return nil
	}
	return &owned{cache: indexer, version: versions[podResource], number: len(keys), by: map[types.UID]bool{owner.GetUID(): true},
		list: func() ([]any, error) { return indexer.ByIndex(controller.PodControllerIndex, index) }}
}

// ownedByDeployment are the ReplicaSets that a Deployment controls, and the pods that those control. A ReplicaSet that comes
// later shows by the proof of the ReplicaSets, which is asked for with that of the pods.
func (s *Store) ownedByDeployment(versions map[schema.GroupResource]string, deployment metav1.Object) map[schema.GroupResource]*owned {
	controlled, sets := s.controlled(versions, replicaSetResource, deployment)
	if controlled == nil {
		return nil
	}
	namespace := deployment.GetNamespace()
	out := map[schema.GroupResource]*owned{replicaSetResource: controlled}
	pods := &owned{version: versions[podResource], by: map[types.UID]bool{}}
	var lists []func() ([]any, error)
	for _, item := range sets {
		set := item.(metav1.Object) // as list has seen
		of := s.ownPods(versions, namespace, "ReplicaSet", set)
		if of == nil {
			return out
		}
		pods.cache = of.cache
		pods.number += of.number
		pods.by[set.GetUID()] = true
		lists = append(lists, of.list)
	}
	if len(lists) == 0 {
		return out
	}
	pods.list = func() (all []any, err error) {
		for _, list := range lists {
			some, err := list()
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	}
	out[podResource] = pods
	return out
}

// controllerIndex is the index of ReplicaSets and ControllerRevisions by their controllers. Each reconcile asks for those of its owner, so it must not look through
// all of the namespace, as upstream does for Deployments and DaemonSets, and does not for StatefulSets (pkg/controller/history/controller_history.go). Controllers
// have indexes of their own in the same caches, as that of ReplicaSets has "controllerUID": none of them must have this name.
const controllerIndex = "freshKCMController"

func controllerIndexKey(namespace string, controller types.UID) string {
	return namespace + "/" + string(controller)
}

// indexByController has the caches of ReplicaSets and of ControllerRevisions find objects by their controllers.
func indexByController(stores map[schema.GroupResource]consistency.LastSyncRVGetter) {
	for _, resource := range []schema.GroupResource{replicaSetResource, revisionResource} {
		indexer, ok := stores[resource].(cache.Indexer)
		if !ok {
			continue
		}
		// It fails if the index is there: another controller's store has the same cache.
		_ = indexer.AddIndexers(cache.Indexers{controllerIndex: func(item any) ([]string, error) {
			object, err := meta.Accessor(item)
			if err != nil {
				return nil, nil // For an error the cache would panic.
			}
			ref := metav1.GetControllerOfNoCopy(object)
			if ref == nil {
				return nil, nil
			}
			return []string{controllerIndexKey(object.GetNamespace(), ref.UID)}, nil
		}})
	}
}

// controlled are the objects of a resource that an owner controls itself, nil if that is unknown. items are those objects.
func (s *Store) controlled(versions map[schema.GroupResource]string, resource schema.GroupResource, owner metav1.Object) (controlled *owned, items []any) {
	indexer, ok := s.caches[resource].(cache.Indexer)
	if !ok {
		return nil, nil
	}
	uid := owner.GetUID()
	list := func() ([]any, error) {
		return indexer.ByIndex(controllerIndex, controllerIndexKey(owner.GetNamespace(), uid))
	}
	items, err := list()
	if err != nil {
		return nil, nil
	}
	return &owned{cache: indexer, version: versions[resource], number: len(items), list: list, by: map[types.UID]bool{uid: true}}, items
}

// ownRevisions are the ControllerRevisions that an owner controls, nil if that is unknown. A reconcile writes one when the owner's template has changed, and goes on.
func (s *Store) ownRevisions(versions map[schema.GroupResource]string, owner metav1.Object) *owned {
	revisions, items := s.controlled(versions, revisionResource, owner)
	if revisions == nil {
		return nil
	}
	name := types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}
	s.wroteRevision(name, objectVersion{})
	revisions.wrote = func() objectVersion {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.revisions[name]
	}
	revisions.before = make(map[types.UID]bool, len(items))
	for _, item := range items {
		revisions.before[item.(metav1.Object).GetUID()] = true // as list has seen
	}
	return revisions
}

// wroteRevision notes the revision that the owner's reconcile has written last, the zero value for none.
func (s *Store) wroteRevision(owner types.NamespacedName, revision objectVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == (objectVersion{}) {
		delete(s.revisions, owner)
		return
	}
	if s.revisions == nil {
		s.revisions = map[types.NamespacedName]objectVersion{}
	}
	s.revisions[owner] = revision
}

// unchanged reports that no object was added, removed or changed, but for the one that the reconcile itself has written. A replaced object shows by the version of the new one; a cache
// that went back proves nothing. It returns false if o is nil.
func (o *owned) unchanged() bool {
	if o == nil || !freshness.Passed(o.cache.LastStoreSyncResourceVersion(), o.version) {
		return false
	}
	items, err := o.list()
	if err != nil {
		return false
	}
	var written objectVersion
	if o.wrote != nil {
		written = o.wrote()
	}
	number := 0
	for _, item := range items {
		object, err := meta.Accessor(item)
		switch {
		case err != nil:
			return false
		case freshness.Passed(o.version, object.GetResourceVersion()):
			number++
		case versionOf(object) != written:
			return false
		case o.before[written.uid]:
			number++
		}
	}
	return number == o.number
}

// objectVersion is one version of an object.
type objectVersion struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(object metav1.Object) objectVersion {
	return objectVersion{object.GetUID(), object.GetResourceVersion()}
}

// equal reports whether the server has the same objects as the cache, at the same versions. outdated is one that the server has no more as the cache has
// it, if there is one: what the cache lacks may be deleted before it is seen.
func (o *owned) equal(served []metav1.PartialObjectMetadata) (equal bool, outdated objectVersion) {
	cached, err := o.list()
	if err != nil {
		return false, objectVersion{}
	}
	now := map[types.UID]string{}
	for i := range served {
		if ref := metav1.GetControllerOfNoCopy(&served[i]); ref != nil && o.by[ref.UID] {
			now[served[i].UID] = served[i].ResourceVersion
		}
	}
	for _, item := range cached {
		object, err := meta.Accessor(item)
		if err != nil {
			return false, objectVersion{}
		}
		if version := object.GetResourceVersion(); now[object.GetUID()] != version {
			return false, objectVersion{object.GetUID(), version}
		}
	}
	return len(now) == len(cached), objectVersion{}
}

// has reports whether the cache has the object in that version.
func (o *owned) has(version objectVersion) bool {
	cached, err := o.list()
	return err == nil && slices.ContainsFunc(cached, func(item any) bool {
		object, err := meta.Accessor(item)
		return err == nil && versionOf(object) == version
	})
}
