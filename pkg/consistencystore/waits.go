// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// waiter is a breaker, or a guard of evictions, that lists what it puts off.
type waiter interface{ Waits() []livereads.PutOff }

// guarded notes a guard of the controller's disruptive actions, so that Waits lists what it puts off.
func guarded[G waiter](s *Store, guard G) G {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guards = append(s.guards, guard)
	return guard
}

// Waits adds to out all that the controller does not do now because a cache may be stale: the owners that wait for their own
// writes or for proofs, and what the guards put off.
func (s *Store) Waits(out *stalenessz.Longest) {
	tally := out.Of(s.name)
	s.EachWaiting(tally.Wants, func(w rvtracker.Wait) {
		out.Add(stalenessz.Wait{
			Controller: w.Controller, Owner: key(w.Owner), Resource: w.Resource, Since: w.Since, Reason: w.Reason(),
			For: fmt.Sprintf("%s, the cache is at %q", w.Awaits(), w.SeenRV), Why: why(w),
		})
	})
	add := func(wants func(time.Time) bool, owner types.NamespacedName, h *hold, awaits string, proof freshness.Proof) {
		if cached, known := s.cached(owner); known && cached == nil {
			return // It is deleted, and waits for nothing.
		}
		if wants(h.since) {
			out.Add(stalenessz.Wait{Controller: s.name, Owner: key(owner), Resource: h.resource, Since: h.since, Reason: h.reason, For: awaits, Why: h.why(proof)})
		}
	}
	s.held.each(func(owner types.NamespacedName, h *hold) {
		if h.action != nil && h.action.forgotten {
			return // Its object is gone, or another reconcile has had its proof.
		}
		wants, awaits, proof := tally.Wants, h.awaits(), h.proof
		if h.reason == stalenessz.ForUnseen {
			wants = tally.WantsAction
		}
		if h.action != nil {
			wants, awaits = tally.WantsAction, awaits+", "+s.purpose()
			if shown, ok := s.shownStale(h.resource); ok {
				proof = shown
			}
		}
		add(wants, owner, h, awaits, proof)
	})
	s.mu.Lock()
	guards, retrying := s.guards, make(map[types.NamespacedName]hold, len(s.retrying))
	for owner, h := range s.retrying {
		retrying[owner] = *h
	}
	s.mu.Unlock()
	for owner, h := range retrying {
		add(tally.WantsAction, owner, &h, h.awaits()+", "+s.purpose(), h.proof)
	}
	for _, guard := range guards {
		for _, w := range guard.Waits() {
			if tally.WantsAction(w.Since) {
				out.Add(stalenessz.Wait{Controller: s.name, Owner: w.Object, Resource: w.Resource, Since: w.Since, Reason: stalenessz.ForAction, For: w.For, Why: w.Why})
			}
		}
	}
}

func why(w rvtracker.Wait) string {
	if w.ProvenStale {
		return string(w.Why) + ": a consistent read confirmed that the cache is stale"
	}
	return string(w.Why)
}
