// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

var podResource = schema.GroupResource{Resource: "pods"}

// view is the versions of a controller's caches when a reconcile began, and what it had read of its owner.
type view struct {
	at       time.Time
	versions map[schema.GroupResource]string
	own      *ownObject // nil: unknown
	// owned are the objects that the owner controls, for resources where they are known.
	owned map[schema.GroupResource]*owned
	// patience, unless 0, is how long to wait for proofs in place of promptly.
	patience time.Duration
	// exact wants proofs no older than the view, recreates those of pods.
	exact, recreates bool
	// counted are the objects from which a lower value was computed, if any.
	counted *tally
	// known are the newest proofs when it began, if an action of the owner waits.
	known map[schema.GroupResource]freshness.Proof

	// What was proven of the view stays proven, even if the reconcile has since made changes itself. Only the holder of the turn
	// may read and write it.
	turn     chan struct{}
	proven   map[schema.GroupResource]bool
	unproven error
}

// View is what consistency.WithOwner keeps of the caches for ProveFresh. The owner is nil if the controller
// does not pass what it has read.
func (s *Store) View(owner metav1.Object, kind schema.GroupVersionKind) any {
	if s.prover == nil {
		return nil
	}
	v := &view{at: time.Now(), versions: make(map[schema.GroupResource]string, len(s.caches)), proven: map[schema.GroupResource]bool{}, turn: make(chan struct{}, 1)}
	if owner != nil {
		name := types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}
		s.refusals.reads(name, owner.GetUID())
		v.known = s.proofsFor(name)
	}
	for resource, c := range s.caches {
		v.versions[resource] = c.LastStoreSyncResourceVersion()
	}
	if s.brief {
		v.patience = s.patience()
	}
	if owner == nil {
		return v
	}
	resource := resourceOf(kind)
	if store, ok := s.caches[resource].(rvtracker.Store); ok {
		v.own = &ownObject{store: store, resource: resource, namespace: owner.GetNamespace(), name: owner.GetName(),
			selector: selectorOf(owner), read: read(owner)}
	}
	// After the versions, so that an event in between counts as a change.
	if kind.Kind == "Deployment" {
		v.owned = s.ownedByDeployment(v.versions, owner)
		d, ok := owner.(*apps.Deployment)
		v.recreates = ok && d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType
	} else if pods := s.ownPods(v.versions, owner.GetNamespace(), kind.Kind, owner); pods != nil {
		v.owned = map[schema.GroupResource]*owned{podResource: pods}
		s.wakeWhenAvailable(owner, pods)
		if revisions := s.ownRevisions(v.versions, owner); revisions != nil {
			v.owned[revisionResource] = revisions
		}
	}
	return v
}

// age is how much older than the view a proof may be. Nodes belong neither to the owner nor to its controller: a pod must not be deleted
// because of a node that joined, or got its label back, a moment ago. Nor must pods start beside those that a ReplicaSet has made a moment ago.
func (v *view) age(resource schema.GroupResource) time.Duration {
	if v.exact || v.own != nil && resource == nodeResource || v.recreates && resource == podResource {
		return 0
	}
	return ProofAge
}

// shows reports whether the proof covers what was read from the cache of the resource, at or after the view.
func (v *view) shows(resource schema.GroupResource, proof freshness.Proof) bool {
	if proof.Exact {
		return v.versions[resource] == proof.ResourceVersion
	}
	return freshness.Passed(v.versions[resource], proof.ResourceVersion)
}

// behind reports whether the cache was proven before the view, and what was read lacks some of it all the same: it is kept by event handlers, which
// have not been told yet.
func (v *view) behind(resource schema.GroupResource, earlier freshness.Proof) bool {
	return earlier.Fresh() && !v.counts(resource) && !freshness.Passed(v.versions[resource], earlier.ResourceVersion)
}

// showsNow is shows for a proof that was made after the view. For the owner and what it controls it is enough that they are
// unchanged: changes to other objects since then make no difference. The owner was read before the view, so
// only that counts for it.
func (v *view) showsNow(resource schema.GroupResource, proof freshness.Proof) bool {
	if v.own != nil && resource == v.own.resource {
		return v.own.unchanged()
	}
	if v.counts(resource) {
		return v.shows(resource, proof) || v.counted.unchanged()
	}
	return v.shows(resource, proof) || v.owned[resource].unchanged()
}

// ownObject is the owner as the reconcile has read it.
type ownObject struct {
	store           rvtracker.Store
	resource        schema.GroupResource
	namespace, name string
	selector        *metav1.LabelSelector // of its pods; nil: unknown
	read            ownVersion
}

// ownVersion is the part of an owner on which its deletions depend. Only its controller writes its status, and waits for its
// own writes.
type ownVersion struct {
	key        string
	uid        types.UID
	generation int64
	deleted    bool
}

func read(o metav1.Object) ownVersion {
	return ownVersion{key: cache.MetaObjectToName(o).String(), uid: o.GetUID(), generation: o.GetGeneration(), deleted: o.GetDeletionTimestamp() != nil}
}

// unchanged reports that the cache has the owner as it was read.
func (o *ownObject) unchanged() bool {
	item, exists, err := o.store.GetByKey(o.read.key)
	if err != nil || !exists {
		return false
	}
	now, err := meta.Accessor(item)
	return err == nil && read(now) == o.read
}
