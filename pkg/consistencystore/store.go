// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// ProofAge is how much older than a reconcile a proof of its view may be, except that of the nodes, and that of the pods of a
// Deployment that recreates. With it, a proof during which the cache has moved is still of use to the next try.
const ProofAge = 2 * time.Second

// Store is one controller's consistency store, kept by the shared tracker. It implements consistency.ConsistencyStore and all that the seam asks
// for besides, as seam.go lists it: parking and waking of owners, proofs, values, passes, live reads, guards of evictions; and transport.Store, which is told
// of the writes.
type Store struct {
	*rvtracker.Controller
	name   string
	ctx    context.Context // of the term of leadership
	since  time.Time       // no proof may be older
	prover Prover          // nil: nothing is proven
	// slowProofs are those of the term.
	slowProofs *slowProofs
	live       *Live // nil: proofs alone count
	caches     map[schema.GroupResource]consistency.LastSyncRVGetter
	// register has the prover look at a cache that is followed; nil: it does already.
	register func(resource schema.GroupResource, store cache.Store) error
	// budget is for live reads where no proof comes: by the guards of evictions and of node health, before other decisions, of nodes of endpoints, and of CronJobs.
	// nil: there are no guards, nothing is decided by such reads, and ReadLive has no limit.
	budget *livereads.Budget
	// reports reports long waits; nil: they are not reported.
	reports *Reporter

	tales tales
	// refusals are the owners of which writes fail.
	refusals refusals

	mu  sync.Mutex
	add func(key string)
	// untracked are the owners, with their UIDs, for which a write could not be recorded.
	untracked map[types.NamespacedName]types.UID
	// putOffs are the actions of owners that have had no proof since their last wait for one ended.
	putOffs map[types.NamespacedName]*putOff
	// ahead has, for owners whose last view was older than the proof, what to prove before their next view.
	ahead map[types.NamespacedName]*ahead
	// revisions are the last ControllerRevisions that owners have written since they were last read.
	revisions map[types.NamespacedName]objectVersion
	// available are the DaemonSets that come back when their next pod becomes available.
	available map[types.NamespacedName]*time.Timer
	// unprovable are the resources about which nothing can be proven, and since when.
	unprovable map[schema.GroupResource]time.Time
	// guards are those of the controller's disruptive actions.
	guards []waiter
	// held are the owners that wait for proofs.
	held *holds
	// followed are caches that the controller reads besides caches.
	followed map[schema.GroupResource]*followed
	// waiting are the values that wait, by the key of their object on the controller's queue, and whether they have waited since the
	// object was last read.
	waiting map[string]map[types.NamespacedName]bool
	// failed are the keys of objects of which writes fail.
	failed map[string]*failure
	// brief says that a worker waits only briefly for proofs, because many owners are due at the same moment.
	brief bool
	// slow is when a worker last waited briefly for a proof that did not come.
	slow time.Time
	// period is that of passes of which none is made early for a look that is in vain, 0 if there are no such.
	period time.Duration
	// statuses are the tries of statuses that could not be written while an action of their owner waits; nil: the controller's queue tries them.
	statuses map[types.NamespacedName]*comeback
	// goesOn is the cache of the resource of which an owner's reconcile waits for no own write, nil if there is none, and unseen has the last such write of each owner
	// until a reconcile has read it.
	goesOn *rvtracker.Source
	unseen map[types.NamespacedName]*unseen
	// retrying are the owners that come back for an action that has failed though it was proven.
	retrying map[types.NamespacedName]*hold
	// turns are those of owners of which the server puts writes off.
	turns turns
	// comebacks are the owners of which writes fail that come back before their queue has them tried again, or after it has given them up.
	comebacks map[types.NamespacedName]*comeback
	// unsettled are the owners' writes of unknown outcome.
	unsettled unsettledWrites
}

// OnReady sets the function that gets the keys of woken owners.
func (s *Store) OnReady(add func(key string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add = add
}

// EnsureReady returns nil if the owner may be reconciled; see rvtracker.Controller.
func (s *Store) EnsureReady(owner types.NamespacedName) error {
	s.refusals.looks(owner)
	if err := s.gate(owner); err != nil {
		return err
	}
	s.refusals.begin(owner)
	if s.goesOn != nil {
		s.beginUnseen(owner)
	}
	s.proveAhead(owner)
	return nil
}

// WroteAt records a write; see rvtracker.Controller. A version that cannot be compared is not waited
// for, so that upstream's expectations stay in force for this owner.
func (s *Store) WroteAt(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string) {
	if s.goesOnAfter(resource) {
		return // Wrote has noted it.
	}
	s.wrote(owner, ownerUID, resource, rv, rvtracker.Sent{})
}

// Wrote records a write by its answer; see rvtracker.Controller. The answer to an update that changed nothing
// has the version that the object had before, and is no write: the cache has the object at just that version.
func (s *Store) Wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, sent rvtracker.Sent) {
	if sent.Suspect(answer.ResourceVersion) && s.holds(resource, answer) {
		return
	}
	if resource == revisionResource {
		s.wroteRevision(owner, versionOf(&answer))
	}
	if s.goesOnAfter(resource) {
		s.wroteUnseen(owner, ownerUID, answer.Name, answer.ResourceVersion)
		return
	}
	s.wrote(owner, ownerUID, resource, answer.ResourceVersion, sent)
}

// Deleted records a deletion; see rvtracker.Controller.
func (s *Store) Deleted(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, key types.NamespacedName, uid types.UID) {
	if !s.goesOnAfter(resource) {
		s.Controller.Deleted(owner, ownerUID, resource, key, uid)
	}
}

func (s *Store) wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		s.Untracked(owner, ownerUID)
	}
	s.Controller.Wrote(owner, ownerUID, resource, rv, sent)
}

// holds reports whether the cache of the resource has an object at just this version.
func (s *Store) holds(resource schema.GroupResource, want metav1.ObjectMeta) bool {
	store, ok := s.caches[resource].(rvtracker.Store)
	if !ok {
		return false
	}
	item, exists, err := store.GetByKey(key(types.NamespacedName{Namespace: want.Namespace, Name: want.Name}))
	if err != nil || !exists {
		return false
	}
	has, err := meta.Accessor(item)
	return err == nil && has.GetUID() == want.UID && has.GetResourceVersion() == want.ResourceVersion
}

// Fenced notes the version of a write, and when it was sent.
func (s *Store) Fenced(resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	if s.prover != nil {
		s.prover.Wrote(resource, rv, sent)
	}
}

// Recorded notes that a write for the owner was recorded.
func (s *Store) Recorded(owner types.NamespacedName, what transport.Write) {
	metrics.Recorded(s.name)
	if s.refusals.done(owner, what) {
		s.endTurn()
	}
	if what.Subresource == "status" && s.statuses != nil {
		s.forgetStatus(owner)
	}
}

// Untracked notes that a write for the owner could not be recorded.
func (s *Store) Untracked(owner types.NamespacedName, ownerUID types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.untracked == nil {
		s.untracked = map[types.NamespacedName]types.UID{}
	}
	s.untracked[owner] = ownerUID
}

// Clear forgets the owner if the UID matches or is empty.
func (s *Store) Clear(owner types.NamespacedName, ownerUID types.UID) {
	s.mu.Lock()
	if ownerUID == "" || s.untracked[owner] == ownerUID {
		delete(s.untracked, owner)
	}
	delete(s.putOffs, owner)
	delete(s.ahead, owner)
	delete(s.statuses, owner)
	delete(s.retrying, owner)
	delete(s.comebacks, owner)
	delete(s.revisions, owner)
	s.forgetUnseen(owner)
	s.stopWaking(owner)
	if r := s.held.actionOf(owner); r != nil {
		s.held.forget(r)
	}
	s.mu.Unlock()
	if s.clearUnsettled(owner, ownerUID) {
		s.wake(owner)
	}
	s.refusals.forget(owner)
	s.Controller.Clear(owner, ownerUID)
}

// SeenOwnWrites reports, after EnsureReady returned nil, whether every write for the owner was recorded
// and so has been seen.
func (s *Store) SeenOwnWrites(owner types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, untracked := s.untracked[owner]
	return !untracked
}

// wake puts an owner back on its controller's queue. A CronJob waits only briefly, and is synced then by a live read. If writes of that fail, the end of
// the wait must not have it tried again before the queue's backoff does.
func (s *Store) wake(owner types.NamespacedName) {
	if s.brief && s.refusals.wentOn(owner) {
		return
	}
	s.mu.Lock()
	add := s.add
	s.mu.Unlock()
	if add != nil {
		add(queueKey(owner))
	}
}

// wakeAction is wake for an owner whose action may be tried again. If a write of its object has failed, it leaves that to the queue's backoff.
func (s *Store) wakeAction(owner types.NamespacedName) {
	key := queueKey(owner)
	s.mu.Lock()
	f := s.failed[key]
	leave := f != nil && f.since
	if leave {
		s.leave(key, f)
	} else if f != nil {
		f.woken = true
	}
	s.mu.Unlock()
	if !leave {
		s.refusals.wakes(owner)
		s.wake(owner)
	}
}

// sleep waits for so long, and reports whether the term of leadership goes on.
func (s *Store) sleep(long time.Duration) (goesOn bool) {
	select {
	case <-time.After(long):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// key is the owner's work queue key, as cache.MetaNamespaceKeyFunc makes it.
func key(owner types.NamespacedName) string { return cache.ObjectName(owner).String() }
