// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

const (
	// retryUnproven is how long an action waits before it asks for a proof again, if the answer does
	// not say when, and the longest that it waits for a stale cache to catch up in between.
	retryUnproven = time.Second
	retryStale    = 30 * time.Second
)

// prover proves caches fresh; *proofs does.
type prover interface {
	// prove says whether the cache of a resource is as new as the server was at asOf.
	prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// wait returns when, after proof, it may be worth proving again.
	wait(ctx context.Context, resource schema.GroupResource, proof freshness.Proof)
}

// Store is one controller's consistency store, kept by the shared tracker. It implements
// consistency.ConsistencyStore and what the seam asks for besides: OnReady, ProveFresh and Deleted.
type Store struct {
	*rvtracker.Controller
	prover prover // nil: nothing is proven
	start  *start // nil: the first reconcile waits for nothing

	mu  sync.Mutex
	add func(key string)
	// retrying are the owners that wait for a proof.
	retrying map[types.NamespacedName]bool
}

var (
	_ consistency.ConsistencyStore = &Store{}
	_ deleteRecorder               = &Store{}
)

// OnReady sets where the keys of owners go that waited.
func (s *Store) OnReady(add func(key string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add = add
}

// EnsureReady returns nil if the owner may be reconciled; see rvtracker.Controller.
func (s *Store) EnsureReady(owner types.NamespacedName) error {
	if s.start != nil {
		if err := s.start.check(owner); err != nil {
			return err
		}
	}
	return s.Controller.EnsureReady(owner)
}

// wake puts an owner back on its controller's queue.
func (s *Store) wake(owner types.NamespacedName) {
	s.mu.Lock()
	add := s.add
	s.mu.Unlock()
	if add != nil {
		add(key(owner))
	}
}

// key is the owner's work queue key, as cache.MetaNamespaceKeyFunc makes it.
func key(owner types.NamespacedName) string {
	return strings.TrimPrefix(owner.String(), "/")
}

// UnprovenError says why a disruptive action was not taken.
type UnprovenError struct {
	// Owner is the object whose reconcile has to wait.
	Owner types.NamespacedName
	// Proof is what is known of the cache: stale, or nothing.
	Proof freshness.Proof

	parked bool
}

// Error implements error.
func (e *UnprovenError) Error() string {
	return fmt.Sprintf("%s waits: its cache is not proven fresh: %s", e.Owner, e.Proof)
}

// Parked is true if the owner is put back on the queue when it is worth asking again.
func (e *UnprovenError) Parked() bool { return e.parked }

// ProveFresh returns nil if the caches of the resources are as new as this call, and otherwise an
// *UnprovenError for the first that is not; the context's owner then comes back to the queue when that
// cache has caught up, or after a while.
func (s *Store) ProveFresh(ctx context.Context, resources ...schema.GroupResource) error {
	if s.prover == nil {
		return nil
	}
	asOf := time.Now()
	for _, resource := range resources {
		proof := s.prover.prove(ctx, resource, asOf)
		if proof.Fresh() {
			continue
		}
		err := &UnprovenError{Proof: proof}
		if owner, ok := consistency.OwnerFrom(ctx); ok {
			err.Owner, err.parked = owner.Name, true
			s.retry(ctx, owner.Name, resource, proof)
		}
		return err
	}
	return nil
}

// retry puts the owner back on the queue once the cache has what it lacked, or, if that cannot be
// said, when the server may answer again. There is one retry under way for an owner.
func (s *Store) retry(ctx context.Context, owner types.NamespacedName, resource schema.GroupResource, proof freshness.Proof) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retrying[owner] {
		return
	}
	if s.retrying == nil {
		s.retrying = map[types.NamespacedName]bool{}
	}
	s.retrying[owner] = true
	klog.FromContext(ctx).Info("A disruptive action waits for a fresh cache", "owner", owner, "resource", resource, "proof", proof.String())
	go func() {
		s.prover.wait(ctx, resource, proof)
		s.mu.Lock()
		delete(s.retrying, owner)
		s.mu.Unlock()
		s.wake(owner)
	}()
}
