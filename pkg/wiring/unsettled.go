// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
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
	// retries counts, of owners whose creations fail, how often they were tried again in the client's place.
	retries map[types.NamespacedName]int
}

// unsettledOwner waits for proofs, one goroutine for all of them, once it is to be reconciled again.
type unsettledOwner struct {
	uid  types.UID
	lost map[schema.GroupResource]time.Time // the last loss of each resource
	// parked is set once the owner was refused: it is proven for, and has to be woken.
	parked bool
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
	s.park(owner, o)
	for resource, at := range o.lost {
		return &unsettledError{owner: owner, resource: resource, since: at, proof: o.last, retryIn: early}
	}
	return nil
}

// park has the owner proven for and woken. The set's mu must be held.
func (s *Store) park(owner types.NamespacedName, o *unsettledOwner) {
	if o.parked {
		return
	}
	u := &s.unsettled
	o.parked = true
	u.waiting++
	metrics.Parked(u.controller, metrics.ForUnsettled, u.waiting)
	go s.settle(s.ctx, owner, o)
}

// clear forgets the owner if the UID matches or is empty.
func (u *unsettledWrites) clear(owner types.NamespacedName, uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if o := u.owners[owner]; o != nil && (uid == "" || uid == o.uid) {
		u.remove(owner)
	}
	delete(u.retries, owner)
}

// remove forgets an owner. mu must be held.
func (u *unsettledWrites) remove(owner types.NamespacedName) {
	if u.owners[owner].parked {
		u.waiting--
		metrics.Parked(u.controller, metrics.ForUnsettled, u.waiting)
	}
	delete(u.owners, owner)
}

// next returns a resource of the owner that has to be proven, and drops the one that was. It forgets the
// owner after the last; wake is whether it waits for that.
func (u *unsettledWrites) next(owner types.NamespacedName, o *unsettledOwner, done schema.GroupResource, proven time.Time) (resource schema.GroupResource, at time.Time, more, wake bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners[owner] != o {
		return resource, at, false, o.parked // cleared, or another owner of the name
	}
	if o.lost[done].Equal(proven) {
		delete(o.lost, done)
	}
	for resource, at := range o.lost {
		return resource, at, true, false
	}
	u.remove(owner)
	return resource, at, false, o.parked
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

func (u *unsettledWrites) note(o *unsettledOwner, proof freshness.Proof) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o.last = proof
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
	}
	o := u.owners[owner]
	if o == nil || o.uid != ownerUID {
		if o != nil {
			u.remove(owner)
		}
		o = &unsettledOwner{uid: ownerUID, lost: map[schema.GroupResource]time.Time{}}
		u.owners[owner] = o
	}
	o.lost[resource] = time.Now()
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
	s.park(owner, o)
	return true, true
}

// created forgets how often the owner's creations had failed.
func (u *unsettledWrites) created(owner types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.retries, owner)
}

// early is how long the owner still has to wait for the server to let it be tried again.
func (u *unsettledWrites) early(o *unsettledOwner) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Until(o.notBefore)
}

// settle proves what the owner's unsettled writes need, until there are none or ctx ends, and wakes it.
// Nothing is given up as long as a proof may come: a server that does not answer takes no writes either.
func (s *Store) settle(ctx context.Context, owner types.NamespacedName, o *unsettledOwner) {
	resource, at, more, wake := s.unsettled.next(owner, o, schema.GroupResource{}, time.Time{})
	began, told, reported := time.Now(), false, false
	for more {
		if early := s.unsettled.early(o); early > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(early):
			}
			// It may have been cleared, or have lost another write.
			resource, at, more, wake = s.unsettled.next(owner, o, schema.GroupResource{}, time.Time{})
			continue
		}
		proof := s.prover.prove(ctx, resource, at)
		hopeless := hopeless(proof, began)
		if ctx.Err() != nil {
			return
		}
		if proof.Fresh() || hopeless {
			if hopeless {
				klog.FromContext(ctx).Info("The outcome of a write stays unknown; going on without", "owner", owner, "resource", resource, "proof", proof.String())
				s.Untracked(owner, o.uid)
			}
			resource, at, more, wake = s.unsettled.next(owner, o, resource, at)
			continue
		}
		if !told {
			told = true
			klog.FromContext(ctx).Info("An object waits to learn the outcome of a write", "controller", s.name, "owner", owner, "resource", resource, "proof", proof.String())
		}
		if !reported && s.report != nil && time.Since(began) >= reportAfter {
			reported = true
			s.report(rvtracker.StaleReport{Controller: s.name, Owner: owner, OwnerUID: o.uid, Proven: proof.Outcome == freshness.Stale,
				Err: &rvtracker.NotReadyError{Controller: s.name, Owner: owner, Resource: resource, Waiting: time.Since(began),
					SeenRV: s.caches[resource].LastStoreSyncResourceVersion(), Why: rvtracker.WhyUnsettled}})
		}
		s.unsettled.note(o, proof)
		s.prover.wait(ctx, resource, proof)
		// It may have been cleared meanwhile.
		resource, at, more, wake = s.unsettled.next(owner, o, schema.GroupResource{}, time.Time{})
	}
	if wake {
		s.wake(owner)
	}
}
