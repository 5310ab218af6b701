// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	// sameWait is how soon after its first turn that followed a wait an owner must ask for a proof again, unless it does in that, for the wait to continue.
	sameWait = 30 * time.Second
	// handlersAfter is after how long it is looked again whether event handlers that are behind a proven cache have caught up.
	handlersAfter = 100 * time.Millisecond
)

// putOff is a hold that puts off an action, while the rest of the reconcile goes on. The hold asks for no proof: the owner comes back
// when one may be possible, and its reconcile asks again, for a proof of what it reads then. So its asOf, unless zero, is the time of the
// slow proofs for which the reconcile did not wait; it stays after the hold has ended.
type putOff struct {
	hold
	uid   types.UID // of the owner, if it has one
	ended time.Time
	// next is when the owner first had its turn after the wait ended, for which it may have queued long, and another says that it has had one more since.
	next    time.Time
	another bool
	// counted are the objects from which the value was computed, if they are to be proven as of that moment.
	counted *tally
	// keeps says that asOf stays though nothing was proven.
	keeps bool
	// began is when the owner last began to wait, also if the wait goes on since before.
	began time.Time
	// wants is what its action wants proven, and wanted all that was wanted in this wait by any action of the owner that has not been proven since.
	wants  want
	wanted map[want]wanted
	// reported says that an event tells of the wait.
	reported bool
	// refuted is the version of the cache that a live read has contradicted, if any.
	refuted string
	// forgotten says that its object is gone, or that it was proven by another reconcile: the wait leaves nothing behind, and is listed no more. It changes under the store's
	// mu and the lock of holds.
	forgotten bool
	// over says that a live read has decided the action, or that nothing of its object is left to do: the end of the wait does not wake the owner.
	over bool
}

// want is a cache that an action, named by all on which it depends, wants proven.
type want struct {
	action   string
	resource schema.GroupResource
}

// wanted says that an action waits.
type wanted struct {
	// since is, for a stale cache, when the server had what the first proof found missing, and for a slow proof as of when it was asked for.
	since time.Time
	// asked is when the action was last put off.
	asked time.Time
}

// retry puts the owner back on the queue once the cache has what it lacked, or, if that is not known, when the server may
// answer again.
func (s *Store) retry(ctx context.Context, owner consistency.Owner, wants want, proof freshness.Proof, asOf time.Time) {
	r := &putOff{uid: owner.UID, wants: wants, hold: hold{resource: wants.resource, proof: proof}}
	if proof.Outcome == freshness.Unknown {
		r.asOf, r.keeps = asOf, true
	}
	s.await(ctx, owner.Name, r, func() bool {
		s.prover.Wait(s.ctx, wants.resource, proof)
		return false
	})
}

// await puts the owner back on the queue when wait returns, which reports whether the caches are proven as of r's asOf.
// An owner has one such wait at a time.
func (s *Store) await(ctx context.Context, owner types.NamespacedName, r *putOff, wait func() (proven bool)) {
	resource, proof, message := r.resource, r.proof, "Put off a disruptive action until a cache is proven fresh"
	if r.handlers {
		message = "Put off a value until the event handlers of a cache have been told all that it has"
	}
	s.refusals.asks(owner)
	parked, again := s.putOff(owner, r)
	if !parked {
		return
	}
	began := time.Now()
	go func() {
		proven := wait()
		if !proven {
			s.outlast(owner, r, began)
		}
		paused := s.outlastFailure(owner, r, proven)
		s.mu.Lock()
		s.held.change(func() { s.held.release(stalenessz.ForAction, owner, r.resource) })
		r.ended = time.Now()
		if !proven && !r.keeps || paused {
			r.asOf = time.Time{}
		}
		if paused {
			delete(s.ahead, owner) // These proofs are old by now.
		}
		over := r.over
		switch {
		case over:
			s.forget(owner)
		case r.forgotten:
			delete(s.ahead, owner)
		default:
			s.putOffs[owner] = r
		}
		s.mu.Unlock()
		if !over {
			s.wakeAction(owner)
		}
	}()
	if !again {
		s.tell(ctx, message, owner, resource, proof)
	}
}

// putOff has the owner wait, and reports whether it does: it may wait already. again says that it goes on with an earlier wait.
func (s *Store) putOff(owner types.NamespacedName, r *putOff) (parked, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.held.actionOf(owner); earlier != nil {
		if earlier.forgotten || earlier.uid != r.uid { // This is another wait.
			earlier.uid, earlier.refuted, earlier.reported = r.uid, "", false
			s.held.change(func() {
				earlier.begin(r)
				earlier.forgotten = false
			})
		} else {
			earlier.want(r)
		}
		earlier.over = false
		return false, false
	}
	if s.putOffs == nil {
		s.putOffs = map[types.NamespacedName]*putOff{}
	}
	r.reason, r.action = stalenessz.ForAction, r
	r.begin(r)
	r.began = time.Now()
	if earlier, ok := s.putOffs[owner]; ok && earlier.uid == r.uid && earlier.goesOn(r.began) {
		again = true
		r.since, r.refuted, r.reported = earlier.since, earlier.refuted, earlier.reported
		for wants, w := range earlier.wanted {
			if w.asked.Before(earlier.began) {
				continue // A whole wait has passed in which the action was not wanted.
			}
			if now, asked := r.wanted[wants]; asked {
				w.asked = now.asked
			}
			r.wanted[wants] = w
		}
	}
	s.held.change(func() { s.held.park(owner, &r.hold) })
	return true, again
}

// hasTurn notes that the owner has its turn after the wait ended.
func (r *putOff) hasTurn() {
	if r.another = !r.next.IsZero(); !r.another {
		r.next = time.Now()
	}
}

// goesOn reports whether the wait, which has ended, goes on if its action is put off again at that time.
func (r *putOff) goesOn(at time.Time) bool { return !r.another || at.Sub(r.next) <= sameWait }

// begin has the wait begin now, for what of wants.
func (r *putOff) begin(of *putOff) {
	r.since, r.wanted = time.Now(), map[want]wanted{}
	r.want(of)
}

// want notes what of wants, since when its action first has in this wait.
func (r *putOff) want(of *putOff) {
	at, stale := of.asOf, of.proof.Outcome == freshness.Stale
	if stale {
		at = of.proof.At
	}
	if !stale && at.IsZero() {
		return
	}
	if before, known := r.wanted[of.wants]; known {
		at = before.since
	}
	r.wanted[of.wants] = wanted{since: at, asked: time.Now()}
}

// waitsToo notes that another action of the owner waits for what the first one of this reconcile is put off for, if it depends on that.
func (s *Store) waitsToo(owner consistency.Owner, action string, resources []schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held.actionOf(owner.Name)
	if r == nil || r.uid != owner.UID || !slices.Contains(resources, r.resource) {
		return
	}
	r.want(&putOff{wants: want{action, r.resource}, hold: hold{asOf: r.asOf, proof: r.proof}})
}

// proofsFor are the newest proofs of what the owner's actions that wait depend on.
func (s *Store) proofsFor(owner types.NamespacedName) map[schema.GroupResource]freshness.Proof {
	s.mu.Lock()
	r := s.waitOf(owner)
	if r == nil {
		s.mu.Unlock()
		return nil
	}
	proofs := map[schema.GroupResource]freshness.Proof{}
	for wants := range r.wanted {
		proofs[wants.resource] = freshness.Proof{}
	}
	s.mu.Unlock()
	for resource := range proofs {
		if known, ok := s.prover.Known(resource); ok {
			proofs[resource] = known
		} else {
			delete(proofs, resource)
		}
	}
	return proofs
}

// reportPutOff has an event tell, once, of an action that was put off for long.
func (s *Store) reportPutOff(owner consistency.Owner) {
	s.mu.Lock()
	r := s.held.actionOf(owner.Name)
	if r == nil || r.reported || time.Since(r.since) < reportAfter {
		s.mu.Unlock()
		return
	}
	r.reported = true
	var why string
	s.held.change(func() { why = r.why(r.proof) })
	waited, resource := time.Since(r.since), r.resource
	s.mu.Unlock()
	s.reports.putOff(s.name, owner, waited, resource, why)
}
