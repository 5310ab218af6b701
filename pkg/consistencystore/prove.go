// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// goOnAfter is for how long nothing could be proven about a resource before deletions go on without a proof.
	goOnAfter = 5 * time.Second
	// lagLimit is for how long a deletion waits, where a cache always lags, for a moment in which what the owner reads stands still.
	lagLimit = 30 * time.Second
)

// UnprovenError says why a disruptive action was not taken.
type UnprovenError struct {
	// Owner is the object whose reconcile has to wait.
	Owner types.NamespacedName
	// Proof is what is known about the cache: stale, unknown, or fresh now, but perhaps not
	// when the reconcile read it.
	Proof freshness.Proof

	parked, again, changed bool
}

// Error implements error.
func (e *UnprovenError) Error() string {
	if e.changed {
		return fmt.Sprintf("%s waits: what its reconcile had read has changed; it is read again", e.Owner)
	}
	if e.Proof.Fresh() {
		return fmt.Sprintf("%s waits: its cache was proven fresh only after the reconcile had read it; it is read again", e.Owner)
	}
	return fmt.Sprintf("%s waits: its cache is not proven fresh: %s", e.Owner, e.Proof)
}

// Parked is true if the store puts the owner back on the queue when another try may succeed.
func (e *UnprovenError) Parked() bool { return e.parked }

// Again is true if only a newer reading is missing: consistency.Sync reconciles the owner once more, and the store proves all that
// it needs before it reads. The owner is also back on the queue, for a controller that does not return the error.
// Again is false the second time in a row, so that the wait is bounded.
func (e *UnprovenError) Again() bool { return e.again }

// errNoOwner is a defect of the controller: nothing says what its reconcile has read.
var errNoOwner = errors.New("nothing can be proven: the context has no owner; mark the reconcile with consistency.WithOwnerRead")

// ProveFresh returns nil if the caches of the resources, as the context's reconcile has read them, had all that the server had at most
// ProofAge before the reconcile began; for nodes, and the pods of a Deployment that recreates, all that it had when the reconcile
// began. For the owner and the pods that it controls it is enough that their caches are proven now and still have them as they were read. Otherwise it returns an *UnprovenError
// for the first resource that fails, and the owner comes back to the queue: at once if the cache is proven
// now, else when it has caught up, or after a while. It also returns the error, once, if the reconcile began more than
// ProofAge before the proofs. It waits for proofs for promptly at most; later proofs serve the
// next reconcile. A reconcile gets one answer: a later call returns the same. Without an owner
// nothing can be proven.
func (s *Store) ProveFresh(ctx context.Context, resources ...schema.GroupResource) error {
	if s.prover == nil {
		return nil
	}
	owner, _ := consistency.OwnerFrom(ctx)
	began, ok := owner.View.(*view)
	if !ok {
		return errNoOwner
	}
	began.turn <- struct{}{}
	defer func() { <-began.turn }()
	action := fmt.Sprint(resources)
	if began.unproven != nil {
		s.waitsToo(owner, action, resources)
		return began.unproven
	}
	early := s.provenAhead(owner.Name)
	resources = s.needed(resources)
	var open []schema.GroupResource
	for _, resource := range resources {
		if proof := early[resource]; !began.proven[resource] && (began.counts(resource) || !(proof.Fresh() && began.shows(resource, proof))) {
			open = append(open, resource)
		}
	}
	asOf := make(map[schema.GroupResource]time.Time, len(resources))
	for _, resource := range resources {
		asOf[resource] = s.asOf(owner.Name, resource, began.at, began.age(resource))
		if began.counts(resource) {
			asOf[resource] = began.counted.at
		}
	}
	replies, rest := ask(cmp.Or(began.patience, promptly), open, func(resource schema.GroupResource) reply {
		return s.proveOrRead(s.ctx, began, resource, asOf[resource], early == nil)
	})
	for _, resource := range open {
		if replies[resource].changed {
			s.proveNextAhead(owner.Name, nil, asOf)
			s.wakeAgain(owner.Name)
			began.unproven = &UnprovenError{Owner: owner.Name, parked: true, again: true, changed: true}
			return began.unproven
		}
		proof, slow := replies[resource].proof, replies[resource].slow
		if replies[resource].shown || proof.Fresh() && began.showsNow(resource, proof) {
			s.provable(resource)
			continue
		}
		if earlier := early[resource]; began.counts(resource) && (slow || proof.Fresh()) && earlier.Fresh() && began.shows(resource, earlier) {
			continue // The proof would come late, or after another change, each time.
		}
		if !slow && s.goOn(ctx, resource, proof) {
			continue
		}
		if (slow || proof.Outcome == freshness.Stale) && s.caughtUp(owner, began, want{action, resource}) {
			s.tell(ctx, "A cache keeps lagging: the disruptive action goes on, because the cache has all that the server had when the action was put off", owner.Name, resource, proof)
			continue
		}
		metrics.Unproven(s.name, resource, string(proof.Outcome))
		switch {
		case slow:
			s.wasSlow()
			s.await(ctx, owner.Name, &putOff{uid: owner.UID, wants: want{action, resource}, hold: hold{resource: resource, proof: proof, asOf: asOf[resource]}, counted: began.counted}, func() (proven bool) {
				if proven = rest(); proven {
					s.proveNextAhead(owner.Name, resources, asOf) // The owner may have to queue for longer than the proofs are valid.
				} else if late, stale := s.shownStale(resource); stale {
					s.prover.Wait(s.ctx, resource, late)
				} else if s.brief {
					s.prover.Wait(s.ctx, resource, proof) // It was not slow for long.
				}
				return proven
			})
		case proof.Fresh() && began.behind(resource, early[resource]):
			s.await(ctx, owner.Name, &putOff{uid: owner.UID, hold: hold{resource: resource, proof: proof, handlers: true}}, func() bool {
				s.sleep(handlersAfter)
				s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
				return false
			})
		case proof.Fresh():
			s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
			s.wakeAgain(owner.Name)
		default:
			s.retry(ctx, owner, want{action, resource}, proof, asOf[resource])
		}
		s.reportPutOff(owner)
		began.unproven = &UnprovenError{Owner: owner.Name, Proof: proof, parked: true, again: proof.Fresh() && early == nil}
		return began.unproven
	}
	if len(open) > 0 && len(early) == 0 && time.Since(began.at) > ProofAge {
		// What was read is now older than a proof may be.
		s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
		s.wakeAgain(owner.Name)
		began.unproven = &UnprovenError{Owner: owner.Name, Proof: replies[open[0]].proof, parked: true, again: true}
		return began.unproven
	}
	for _, resource := range resources {
		began.proven[resource] = true
	}
	s.proven(owner.Name, action)
	return nil
}

// goOn reports whether nothing could be proven about a resource for so long that a deletion goes on without a proof, as on upstream: where
// versions cannot be compared, no proof will ever come.
func (s *Store) goOn(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) bool {
	now := time.Now()
	if !proof.Hopeless(now) {
		s.provable(resource)
		return false
	}
	s.mu.Lock()
	if s.unprovable == nil {
		s.unprovable = map[schema.GroupResource]time.Time{}
	}
	since, known := s.unprovable[resource]
	if !known {
		s.unprovable[resource] = now
	}
	s.mu.Unlock()
	if !known {
		klog.FromContext(ctx).Info("A cache cannot be proven fresh; after a while deletions go on without the proof, as upstream's", "controller", s.name,
			"resource", resource, "in", goOnAfter, "proof", proof.String())
		return false
	}
	return now.Sub(since) >= goOnAfter
}

// caughtUp reports whether what was read has all that the server had when this action of this owner was first put off because the cache was stale, or its proof
// slow. A cache that lags all the time, and whose collection changes all the time, is never proven for a later moment. Where what the owner reads of it is little,
// and can be read from the server instead, that is given lagLimit.
func (s *Store) caughtUp(owner consistency.Owner, began *view, wants want) bool {
	s.mu.Lock()
	r := s.waitOf(owner.Name)
	if r == nil || r.uid != owner.UID || !r.goesOn(began.at) {
		s.mu.Unlock()
		return false
	}
	waits, wanted := r.wanted[wants]
	s.mu.Unlock()
	since := waits.since
	if !wanted || s.live != nil && s.live.reads(began, wants.resource) && !began.many(wants.resource) && began.at.Sub(since) < lagLimit {
		return false
	}
	known, ok := began.known[wants.resource] // The newest proof may be of a moment after the view.
	if !ok || known.At.Before(since) {
		known, ok = s.prover.Known(wants.resource)
	}
	return ok && !known.At.Before(since) && began.shows(wants.resource, known)
}

// provable notes that a resource can be proven.
func (s *Store) provable(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unprovable, resource)
}

// needed adds, to the caches on which a disruptive action depends, those that were used without a proof after a relist.
func (s *Store) needed(resources []schema.GroupResource) []schema.GroupResource {
	for _, resource := range s.Controller.Unproven() {
		if !slices.Contains(resources, resource) {
			resources = append(slices.Clip(resources), resource)
		}
	}
	return resources
}
