// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// promptly is how long a reconcile waits for proofs. A slow server must delay neither the rest of the reconcile nor
// other owners.
const promptly = time.Second

// reply is the answer to a request for a proof.
type reply struct {
	proof freshness.Proof
	// shown says that a live read has shown what the reconcile has read. The proof comes by later then.
	shown bool
	later <-chan freshness.Proof
	// changed says that what the reconcile has read has changed since, and a live read has shown that the cache is right by now. The proof comes by later.
	changed bool
	// slow says that there is no proof yet.
	slow bool
}

// ask asks for the proofs of all resources at the same time, and waits for that long. rest, unless nil, waits for the replies that
// are still missing, and reports whether all are proofs.
func ask(wait time.Duration, resources []schema.GroupResource, prove func(schema.GroupResource) reply) (replies map[schema.GroupResource]reply, rest func() bool) {
	type one struct {
		resource schema.GroupResource
		reply    reply
	}
	replied := make(chan one, len(resources))
	replies = make(map[schema.GroupResource]reply, len(resources))
	for _, resource := range resources {
		replies[resource] = reply{slow: true, proof: freshness.Proof{Resource: resource.WithVersion(""), Outcome: freshness.Unknown,
			Reason: freshness.ReasonTimeout, Err: fmt.Errorf("the server has not answered within %s", wait)}}
		go func() { replied <- one{resource, prove(resource)} }()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for missing := len(resources); missing > 0; missing-- {
		select {
		case a := <-replied:
			replies[a.resource] = a.reply
		case <-timer.C:
			return replies, func() bool {
				good := true
				for ; missing > 0; missing-- {
					late := (<-replied).reply
					if late.shown || late.changed {
						late.proof = <-late.later
					}
					good = good && late.proof.Fresh()
				}
				return good
			}
		}
	}
	return replies, nil
}

// asOf is the time that proofs of the resource must reach for a reconcile that began then: age before that, as slowProofs says, or, if its owner has waited for slow
// proofs until now, the time of those. Newer ones would take as long again. If it has queued since, others' proofs serve
// it that are as old as its own were when they came: else each of many that queue would wait for a proof of its own. That is for the reconcile
// that follows the wait: how long proofs once took says nothing later.
func (s *Store) asOf(owner types.NamespacedName, resource schema.GroupResource, began time.Time, age time.Duration) time.Time {
	asOf := s.slowProofs.since(resource, began, age)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.slowProof(owner, began); r != nil {
		asOf = earlier(asOf, r.asOf)
	} else if r := s.putOffs[owner]; r != nil && !r.asOf.IsZero() && s.ahead[owner] != nil {
		asOf = earlier(asOf, began.Add(r.asOf.Sub(r.ended)))
	}
	if asOf.Before(s.since) {
		return s.since
	}
	return asOf
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// slowProof is the wait for slow proofs that preceded a reconcile which began then, nil if there is none. mu must be held.
func (s *Store) slowProof(owner types.NamespacedName, began time.Time) *putOff {
	r := s.held.actionOf(owner)
	if r == nil {
		if r = s.putOffs[owner]; r == nil || began.Sub(r.ended) > ProofAge {
			return nil
		}
	}
	if r.asOf.IsZero() || r.keeps && began.Sub(r.asOf) > lagLimit {
		return nil
	}
	return r
}

// proven forgets that the action waits, and the owner's wait, unless another action of it waits, too.
func (s *Store) proven(owner types.NamespacedName, action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ahead, owner)
	delete(s.statuses, owner)
	r := s.waitOf(owner)
	if r == nil {
		return
	}
	s.held.change(func() { r.asOf = time.Time{} })
	maps.DeleteFunc(r.wanted, func(w want, _ wanted) bool { return w.action == action })
	if len(r.wanted) == 0 {
		delete(s.putOffs, owner)
		s.held.forget(r)
	}
}
