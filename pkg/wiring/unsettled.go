// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// reportAfter is how long an owner waits for the outcome of a write before it is said on the object.
const reportAfter = time.Minute

// unsettledWrites are writes of which nobody knows whether they were made, because the answer was lost. Their
// owners wait until the cache is proven as new as the loss: then it shows the write, or there was none. What
// a server commits later than that, on behalf of a request it has already failed, is not caught.
type unsettledWrites struct {
	mu         sync.Mutex
	controller string
	owners     map[types.NamespacedName]*unsettledOwner
	waiting    int // how many of them are parked
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
}

func (e *unsettledError) Error() string {
	if e.retryIn > 0 {
		return fmt.Sprintf("%s waits: the answer to a write of %s was lost %s ago, and the server asks to wait for another %s",
			e.owner, e.resource, time.Since(e.since).Round(time.Millisecond), e.retryIn.Round(time.Millisecond))
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
	early := time.Until(o.notBefore)
	for resource, at := range o.lost {
		if proof, ok := s.prover.known(resource); ok && !proof.At.Before(at) && early <= 0 {
			delete(o.lost, resource)
		}
	}
	if len(o.lost) == 0 {
		u.remove(owner)
		return nil
	}
	s.park(o)
	for resource, at := range o.lost {
		return &unsettledError{owner: owner, resource: resource, since: at, proof: o.last, retryIn: early}
	}
	return nil
}

// park has the owner proven for and woken. The set's mu must be held.
func (s *Store) park(o *unsettledOwner) {
	if o.parked {
		return
	}
	u := &s.unsettled
	o.parked, o.since = true, time.Now()
	u.waiting++
	metrics.Parked(u.controller, metrics.ForUnsettled, u.waiting)
	for resource := range o.lost {
		s.startSettling(resource)
	}
}

// clear forgets the owner if the UID matches or is empty. It reports whether the owner was parked and has to be woken.
func (u *unsettledWrites) clear(owner types.NamespacedName, uid types.UID) (wake bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if o := u.owners[owner]; o != nil && (uid == "" || uid == o.uid) {
		wake = o.parked
		u.remove(owner)
	}
	delete(u.retries, owner)
	return wake
}

// remove forgets an owner. mu must be held.
func (u *unsettledWrites) remove(owner types.NamespacedName) {
	if u.owners[owner].parked {
		u.waiting--
		metrics.Parked(u.controller, metrics.ForUnsettled, u.waiting)
	}
	delete(u.owners, owner)
}

// waits are the owners that are refused, once for each resource of which a write may have been made.
func (u *unsettledWrites) waits(out *stalenessmonitor.Longest) {
	inParts(&u.mu, func() map[types.NamespacedName]*unsettledOwner { return u.owners }, func(owner types.NamespacedName, o *unsettledOwner) func() {
		if !o.parked {
			return nil // It is not to be reconciled.
		}
		var rows []stalenessmonitor.Wait
		for resource, at := range o.lost {
			if out.Wants(at) {
				rows = append(rows, stalenessmonitor.Wait{Controller: u.controller, Owner: key(owner), Resource: resource, Since: at, For: "the outcome of a write whose answer was lost"})
			}
		}
		if len(rows) == 0 {
			return nil
		}
		last, early := o.last, time.Until(o.notBefore)
		return func() {
			for _, row := range rows {
				row.Why = whyUnsettled(last, early)
				out.Add(row)
			}
		}
	})
}

// whyUnsettled says why the outcome is not known yet, by the last proof and how long the server asks to wait.
func whyUnsettled(last freshness.Proof, early time.Duration) string {
	switch {
	case early > 0:
		return fmt.Sprintf("the server asks to wait for another %s", early.Round(100*time.Millisecond))
	case last.Outcome == "":
		return "the cache is being proven as new as the loss"
	}
	return last.String()
}

const (
	// neverRetried says of a write whose outcome is unknown that its client would not have sent it again.
	neverRetried time.Duration = -1
	// maxRetries is how often client-go sends a request again before it tells the controller of the error.
	maxRetries = 10
)

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
		u.controller, u.owners, u.retries = s.name, map[types.NamespacedName]*unsettledOwner{}, map[types.NamespacedName]int{}
		u.settling = map[schema.GroupResource]chan struct{}{}
	}
	o := u.owners[owner]
	if o == nil || o.uid != ownerUID {
		if o != nil {
			if o.parked {
				defer s.wake(owner)
			}
			u.remove(owner)
		}
		o = &unsettledOwner{uid: ownerUID, lost: map[schema.GroupResource]time.Time{}}
		u.owners[owner] = o
	}
	o.lost[resource] = time.Now()
	if o.parked {
		s.startSettling(resource)
	}
	if retry == neverRetried {
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
	s.park(o)
	return true, true
}

// created forgets how often the owner's creations had failed.
func (u *unsettledWrites) created(owner types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.retries, owner)
}
