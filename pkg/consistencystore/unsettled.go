// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// reportAfter is how long an owner waits for the outcome of a write before it is said on the object.
const reportAfter = time.Minute

// renewalTick is how often it is looked whether the leader lease was renewed since a loss.
const renewalTick = 100 * time.Millisecond

// unsettledWrites are writes of which nobody knows whether they were made, because the answer was lost. Their
// owners wait until the cache is proven as new as the loss: then it shows the write, or there was none.
//
// A consistent read alone does not show that: etcd may have been handed the write before, and commit it a moment after the
// read. It commits in the order in which it was handed the writes, so the cache is proven as new as the answer to a later
// one: the first renewal of the leader lease that was sent after the loss. What an apiserver hands to etcd later still, on
// behalf of a request that its client has given up, is not caught.
type unsettledWrites struct {
	// renewed is when the last renewal of the leader lease that succeeded was sent; nil without leader election.
	renewed func() time.Time

	mu     sync.Mutex
	owners map[types.NamespacedName]*unsettledOwner
	// settling has a goroutine for each resource that is proven for owners: one for all of them. It is kicked when
	// there are more.
	settling map[schema.GroupResource]chan struct{}
	// retries counts, of owners whose creations fail, how often they were tried again in the client's place.
	retries map[types.NamespacedName]int
}

// unsettledOwner waits for proofs, once it is to be reconciled again.
type unsettledOwner struct {
	uid  types.UID
	lost map[schema.GroupResource]time.Time // the last loss of each resource
	// latest is the last loss of all, and followed when a write that was sent after it was known to be made; zero if none is.
	latest, followed time.Time
	// parked is set once the owner was refused: it is proven for, and has to be woken.
	parked   bool
	since    time.Time // when it was parked
	reported bool
	// notBefore is when the server lets it be tried again.
	notBefore time.Time
	last      freshness.Proof
}

// unsettledError says that an owner waits to learn what became of a write.
type unsettledError struct {
	owner    types.NamespacedName
	resource schema.GroupResource
	since    time.Time
	proof    freshness.Proof
	// retryIn is for how long the server has asked not to be tried again.
	retryIn time.Duration
	// followed says that a later write is known to be made.
	followed bool
}

func (e *unsettledError) Error() string {
	if e.retryIn > 0 {
		return fmt.Sprintf("%s waits: the answer to a write of %s was lost %s ago, and the server asks to wait for another %s",
			e.owner, e.resource, time.Since(e.since).Round(time.Millisecond), e.retryIn.Round(time.Millisecond))
	}
	if !e.followed {
		return fmt.Sprintf("%s waits: the answer to a write of %s was lost %s ago, and the leader lease was not renewed since",
			e.owner, e.resource, time.Since(e.since).Round(time.Millisecond))
	}
	return fmt.Sprintf("%s waits: the answer to a write of %s was lost %s ago, and the cache is not proven as new as that: %s",
		e.owner, e.resource, time.Since(e.since).Round(time.Millisecond), e.proof)
}

// Parked implements what consistency.Parked asks for.
func (e *unsettledError) Parked() bool { return true }

// checkUnsettled refuses an owner with an unsettled write, and has it woken when that is settled. What is proven
// already settles it at no cost: by the time of a retry with backoff that is the usual case.
func (s *Store) checkUnsettled(owner types.NamespacedName) error {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	o := u.owners[owner]
	if o == nil {
		return nil
	}
	early, followed := time.Until(o.notBefore), u.follow(o)
	for resource, at := range o.lost {
		if proof, ok := s.prover.Known(resource); ok && followed && !proof.At.Before(o.asOf(at)) && early <= 0 {
			delete(o.lost, resource)
		}
	}
	if len(o.lost) == 0 {
		s.settled(owner)
		return nil
	}
	s.park(owner, o)
	for resource, at := range o.lost {
		return &unsettledError{owner: owner, resource: resource, since: at, proof: o.last, retryIn: early, followed: followed}
	}
	return nil
}

// follow reports whether a write that was sent after the owner's last loss is known to be made, if that can be known. mu must
// be held.
func (u *unsettledWrites) follow(o *unsettledOwner) bool {
	if u.renewed == nil {
		return true
	}
	if o.followed.IsZero() && u.renewed().After(o.latest) {
		o.followed = time.Now()
	}
	return !o.followed.IsZero()
}

// asOf is what has to be proven of a loss.
func (o *unsettledOwner) asOf(lost time.Time) time.Time {
	if o.followed.After(lost) {
		return o.followed
	}
	return lost
}

// park has the owner proven for and woken. The set's mu must be held.
func (s *Store) park(owner types.NamespacedName, o *unsettledOwner) {
	if o.parked {
		return
	}
	o.parked, o.since = true, time.Now()
	s.held.park(holdUnsettled, owner, unsettledHold{&s.unsettled, o})
	for resource := range o.lost {
		s.startSettling(resource)
	}
}

// clear forgets the owner if the UID matches or is empty. It reports whether the owner was parked and has to be woken.
func (s *Store) clearUnsettled(owner types.NamespacedName, uid types.UID) (wake bool) {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if o := u.owners[owner]; o != nil && (uid == "" || uid == o.uid) {
		wake = o.parked
		s.settled(owner)
	}
	delete(u.retries, owner)
	return wake
}

// settled forgets an owner's unsettled writes. The set's mu must be held.
func (s *Store) settled(owner types.NamespacedName) {
	if s.unsettled.owners[owner].parked {
		s.held.release(holdUnsettled, owner)
	}
	delete(s.unsettled.owners, owner)
}

// unsettledHold is an owner that is refused until it is known what became of its writes.
type unsettledHold struct {
	writes *unsettledWrites
	owner  *unsettledOwner
}

func (h unsettledHold) list(controller string, owner types.NamespacedName, out *stalenessz.Longest) {
	h.writes.mu.Lock()
	defer h.writes.mu.Unlock()
	for resource, at := range h.owner.lost {
		if out.Wants(at) {
			out.Add(stalenessz.Wait{Controller: controller, Owner: key(owner), Resource: resource, Since: at, For: "the outcome of a write whose answer was lost",
				Why: whyUnsettled(h.owner.last, time.Until(h.owner.notBefore), h.writes.follow(h.owner))})
		}
	}
}

// whyUnsettled says why the outcome is not known yet, by the last proof and how long the server asks to wait.
func whyUnsettled(last freshness.Proof, early time.Duration, followed bool) string {
	switch {
	case early > 0:
		return fmt.Sprintf("the server asks to wait for another %s", early.Round(100*time.Millisecond))
	case !followed:
		return "the leader lease was not renewed since"
	case last.Outcome == "":
		return "the cache is being proven as new as the loss"
	}
	return last.String()
}

// maxRetries is how often client-go sends a request again before it tells the controller of the error.
const maxRetries = 10

// Unsettled notes that a write was sent for the owner and its outcome is unknown: EnsureReady refuses the
// owner until the cache of the resource is proven as new as now. No proof is asked for before that. Resources that
// the controller has no cache of are not tracked.
//
// If the client would have sent the write again after retry, the owner is to be reconciled again in its place: EnsureReady
// refuses it for as long at least, and it is put back on the queue then. After as many times as the client would have
// tried it is not, so that the queue's backoff applies.
func (s *Store) Unsettled(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, retry time.Duration) (tracked, again bool) {
	if _, ok := s.caches[resource]; !ok || s.prover == nil {
		return false, false
	}
	metrics.Unsettled(s.name, resource)
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners == nil {
		u.owners, u.retries = map[types.NamespacedName]*unsettledOwner{}, map[types.NamespacedName]int{}
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
		o = &unsettledOwner{uid: ownerUID, lost: map[schema.GroupResource]time.Time{}}
		u.owners[owner] = o
	}
	o.latest, o.followed = time.Now(), time.Time{}
	o.lost[resource] = o.latest
	if o.parked {
		s.startSettling(resource)
	}
	if retry == transport.NeverRetried {
		return true, false
	}
	if o.notBefore.IsZero() { // Else it is one of several creations that failed together.
		if u.retries[owner] == maxRetries {
			delete(u.retries, owner)
			return true, false
		}
		u.retries[owner]++
	}
	if at := time.Now().Add(retry); at.After(o.notBefore) {
		o.notBefore = at
	}
	s.park(owner, o)
	return true, true
}

// created forgets how often the owner's creations had failed.
func (u *unsettledWrites) created(owner types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.retries, owner)
}
