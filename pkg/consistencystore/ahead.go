// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// aheadLimit is how long a worker waits for proofs before the view. Where proofs are slow and the cache is busy, no other
// order works.
const aheadLimit = 15 * time.Second

// ahead are resources to prove before an owner's next view, and the proofs. A proof that follows
// the view finds a busy cache further on than the view each time.
type ahead struct {
	resources []schema.GroupResource
	asOf      map[schema.GroupResource]time.Time       // at least
	proofs    map[schema.GroupResource]freshness.Proof // nil: not proven yet
}

// proveNextAhead has the resources proven before the owner's next view, together with those proven before this one.
func (s *Store) proveNextAhead(owner types.NamespacedName, resources []schema.GroupResource, asOf map[schema.GroupResource]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		s.ahead = map[types.NamespacedName]*ahead{}
	}
	if earlier := s.ahead[owner]; earlier != nil {
		resources = slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(earlier.resources, resources)), byName))
	}
	s.ahead[owner] = &ahead{resources: resources, asOf: asOf}
}

// notShown are the resources that no live read has shown. The next reconcile reads the others live again, if their proof
// is slow.
func notShown(resources []schema.GroupResource, replies map[schema.GroupResource]reply) []schema.GroupResource {
	return slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return replies[r].shown })
}

func byName(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }

// proveAhead begins the owner's turn. It proves, once and before the view, what the owner's last reconcile asked for. The reconcile asks again for what could not
// be proven within aheadLimit.
func (s *Store) proveAhead(owner types.NamespacedName) {
	s.mu.Lock()
	if r := s.putOffs[owner]; r != nil {
		r.hasTurn()
	}
	a := s.ahead[owner]
	if a != nil && a.proofs != nil {
		delete(s.ahead, owner) // That was for the reconcile before this one.
		a = nil
	}
	s.mu.Unlock()
	if a == nil {
		return
	}
	now := time.Now()
	replies, _ := ask(aheadLimit, a.resources, func(resource schema.GroupResource) reply {
		asOf := s.asOf(owner, resource, now, ProofAge)
		if asOf.Before(a.asOf[resource]) {
			asOf = a.asOf[resource]
		}
		return reply{proof: s.prover.Prove(s.ctx, resource, asOf)}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	a.proofs = map[schema.GroupResource]freshness.Proof{}
	for resource, reply := range replies {
		a.proofs[resource] = reply.proof
	}
}

// provenAhead is what proveAhead has proven for the current reconcile.
func (s *Store) provenAhead(owner types.NamespacedName) map[schema.GroupResource]freshness.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.ahead[owner]; a != nil {
		return a.proofs
	}
	return nil
}
