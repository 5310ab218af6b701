// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// reportAfter is how long an owner waits for the outcome of a write before an event is recorded on it.
const reportAfter = time.Minute

// renewalTick is how often settle checks whether the leader lease was renewed since a loss.
const renewalTick = 100 * time.Millisecond

// unsettledWrites are writes whose answers were lost: it is not known whether the server made them. Their
// owners wait until the cache is proven as new as the loss: then it shows the write, or there was none.
//
// A consistent read alone does not show that: an apiserver may have handed the write to etcd before, and etcd commit it a moment after the
// read. etcd commits writes in the order in which it receives them, so the cache has to be proven as new as the answer to a later
// write: the first renewal of the leader lease that was sent after the loss. If an apiserver hands a write to etcd later still, for
// a request that its client has given up, it is missed.
type unsettledWrites struct {
	// renewed is when the last successful renewal of the leader lease was sent; nil without leader election.
	renewed func() time.Time

	mu     sync.Mutex
	owners map[types.NamespacedName]*unsettledOwner
	// settling has, for each resource that is proven for owners, the channel that tells its one goroutine of more owners.
	settling map[schema.GroupResource]chan struct{}
}

// unsettledOwner waits for proofs, once it is to be reconciled again.
type unsettledOwner struct {
	uid types.UID
	// lost has a hold for the last loss of each resource. With leader election its asOf is zero until a later write has succeeded.
	lost map[schema.GroupResource]*hold
	// latest is the last loss of all, and followed says that a write which was sent after it has succeeded.
	latest   time.Time
	followed bool
	// parked is set once the owner was refused, at since: a goroutine proves its resources, and has to wake it.
	parked   bool
	since    time.Time
	reported bool
	turn
}

// checkUnsettled refuses an owner with an unsettled write, and has it woken when that is settled. A proof that exists
// already settles it without a request, as is usual by the time of a retry with backoff.
func (s *Store) checkUnsettled(owner types.NamespacedName) error {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	o := u.owners[owner]
	if o == nil {
		return nil
	}
	if s.gone(owner, o.uid) {
		s.settled(owner) // Nothing is made for it any more, and another of its name waits for no write of its.
		return nil
	}
	followed := s.follow(o)
	for resource, h := range o.lost {
		if proof, ok := s.prover.Known(resource); ok && followed && !proof.At.Before(h.asOf) && !o.notBefore.After(time.Now()) {
			s.settledOf(owner, o, resource)
		}
	}
	if len(o.lost) == 0 {
		s.settled(owner)
		return nil
	}
	s.park(owner, o)
	if o.wanted() {
		for resource := range o.lost {
			s.startSettling(resource)
		}
	}
	for _, h := range o.lost {
		return &heldError{owner: owner, hold: *h}
	}
	return nil
}

// gone reports whether the cache of the controller's own resource has no such owner, or another one of its name. Its controller may be told of that only by a
// reconcile, which the owner must be ready for.
func (s *Store) gone(owner types.NamespacedName, uid types.UID) bool {
	cached, ok := s.cached(owner)
	return ok && (cached == nil || cached.GetUID() != uid)
}

// cached is the owner as the cache of the controller's own resource has it, nil if it has none. ok is false if that is unknown.
func (s *Store) cached(owner types.NamespacedName) (cached metav1.Object, ok bool) {
	own, known := s.ownResource()
	if !known {
		return nil, false
	}
	return s.object(own, owner)
}

// object is one as the cache of its resource has it, nil if it has none. ok is false if that is unknown.
func (s *Store) object(resource schema.GroupResource, name types.NamespacedName) (cached metav1.Object, ok bool) {
	store, ok := s.caches[resource].(rvtracker.Store)
	if !ok {
		return nil, false
	}
	item, exists, err := store.GetByKey(key(name))
	if err != nil || !exists {
		return nil, err == nil
	}
	has, err := meta.Accessor(item)
	return has, err == nil
}

// follow reports whether a write that was sent after the owner's last loss has succeeded; without leader election it returns true. The
// set's mu must be held.
func (s *Store) follow(o *unsettledOwner) bool {
	renewed := s.unsettled.renewed
	if renewed != nil && !o.followed && renewed().After(o.latest) {
		o.followed = true
		s.held.change(func() {
			for _, h := range o.lost {
				h.asOf = time.Now()
			}
		})
	}
	return renewed == nil || o.followed
}

// park has the owner's resources proven, and the owner woken then. The set's mu must be held.
func (s *Store) park(owner types.NamespacedName, o *unsettledOwner) {
	if o.parked {
		return
	}
	o.parked, o.since = true, time.Now()
	for resource, h := range o.lost {
		s.held.change(func() { s.held.park(owner, h) })
		s.startSettling(resource)
	}
}

// clearUnsettled forgets the owner if the UID matches or is empty. It reports whether the owner was parked and has to be woken.
func (s *Store) clearUnsettled(owner types.NamespacedName, uid types.UID) (wake bool) {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if o := u.owners[owner]; o != nil && (uid == "" || uid == o.uid) {
		wake = o.parked
		s.settled(owner)
	}
	return wake
}

// settledOf forgets an owner's loss of one resource, and settled those of all. The set's mu must be held.
func (s *Store) settledOf(owner types.NamespacedName, o *unsettledOwner, resource schema.GroupResource) {
	if o.parked {
		s.held.change(func() { s.held.release(stalenessz.ForUnsettled, owner, resource) })
	}
	delete(o.lost, resource)
}

func (s *Store) settled(owner types.NamespacedName) {
	o := s.unsettled.owners[owner]
	for resource := range o.lost {
		s.settledOf(owner, o, resource)
	}
	delete(s.unsettled.owners, owner)
}

// Unsettled notes that a write was sent for the owner and its outcome is unknown: EnsureReady refuses the
// owner until the cache of the resource is proven as new as now. No proof is asked for before EnsureReady is called. Resources
// of which the controller has no cache are not tracked. Nor is the status of an autoscaler: its replicas are read from the server, and to raise them must
// not wait. Nor are those of Deployments and ReplicationControllers to themselves, for which upstream does not wait either: the server refuses an outdated one. Where retry says so, the owner comes
// back as after RetryAfter all the same.
//
// If the client would have sent the write again after retry, the owner has to be reconciled again instead: EnsureReady
// refuses it for at least that time, and then it comes back to the queue, as after RetryAfter.
func (s *Store) Unsettled(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, retry time.Duration) (again transport.PutOff, tracked bool) {
	if _, ok := s.caches[resource]; !ok || s.prover == nil || s.name == autoscaler {
		return again, false
	}
	if s.goesOnAfter(resource) && resource != revisionResource {
		if retry == transport.NeverRetried {
			return again, false
		}
		return s.RetryAfter(owner, transport.Write{Resource: resource}, retry), true
	}
	metrics.Unsettled(s.name, resource)
	var t turn
	if retry != transport.NeverRetried {
		t = s.putsOff(owner, retry)
	}
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners == nil {
		u.owners = map[types.NamespacedName]*unsettledOwner{}
		u.settling = map[schema.GroupResource]chan struct{}{}
	}
	o := u.owners[owner]
	if o == nil || o.uid != ownerUID {
		if o != nil {
			if o.parked {
				defer s.wake(owner)
			}
			s.settled(owner)
		}
		o = &unsettledOwner{uid: ownerUID, lost: map[schema.GroupResource]*hold{}}
		u.owners[owner] = o
	}
	s.lose(owner, o, resource)
	if retry == transport.NeverRetried {
		return again, true
	}
	o.turn = o.turn.and(t)
	o.tell(s.held)
	s.park(owner, o)
	return o.putOff(), true
}

// tell has the owner's holds say how long it waits. The set's mu must be held.
func (o *unsettledOwner) tell(held *holds) {
	held.change(func() {
		for _, h := range o.lost {
			h.turn = o.turn
		}
	})
}

// endTurn ends the first turn of the owners, and reports whether there is one.
func (u *unsettledWrites) endTurn(held *holds) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	var first *unsettledOwner
	for _, o := range u.owners {
		if o.longer() && (first == nil || o.notBefore.Before(first.notBefore)) {
			first = o
		}
	}
	if first == nil {
		return false
	}
	first.ends()
	first.tell(held)
	for _, kick := range u.settling {
		look(kick)
	}
	return true
}

// lose notes that an answer about the resource was lost now. The set's mu must be held.
func (s *Store) lose(owner types.NamespacedName, o *unsettledOwner, resource schema.GroupResource) {
	o.latest, o.followed = time.Now(), false
	h, known := o.lost[resource]
	if !known {
		h = &hold{reason: stalenessz.ForUnsettled, resource: resource, turn: o.turn}
		o.lost[resource] = h
	}
	s.held.change(func() {
		h.since, h.asOf = o.latest, o.latest
		if s.unsettled.renewed != nil {
			for _, h := range o.lost {
				h.asOf = time.Time{}
			}
		}
		if o.parked && !known {
			s.held.park(owner, h)
		}
	})
	if o.parked {
		s.startSettling(resource)
	}
}
