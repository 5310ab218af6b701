// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// retryStart is how often the caches are looked at before a controller's first reconcile.
const retryStart = 100 * time.Millisecond

// start holds a controller's first reconciles back until its caches are proven to be as new as the
// moment at which this process became leader: what an earlier leader wrote is recorded nowhere else
// (gap 17). An informer's first list is a consistent read with WatchList; without it, or when it falls
// back, it may be answered by an apiserver that lags.
type start struct {
	holds *holds
	done  atomic.Bool

	mu     sync.Mutex
	behind freshness.Proof
}

// startHold is an owner that waits since a time.
type startHold struct {
	start *start
	since time.Time
}

func (h startHold) list(controller string, owner types.NamespacedName, out *stalenessz.Longest) {
	if !out.Wants(h.since) {
		return
	}
	h.start.mu.Lock()
	behind := h.start.behind
	h.start.mu.Unlock()
	out.Add(stalenessz.Wait{
		Controller: controller, Owner: key(owner), Resource: behind.Resource.GroupResource(), Since: h.since,
		For: "a proof that the caches are as new as the start of leadership", Why: behind.String(),
	})
}

// startError says that an owner waits for the first proof.
type startError struct {
	owner types.NamespacedName
	proof freshness.Proof
}

func (e *startError) Error() string {
	return fmt.Sprintf("%s waits: its caches are not proven as new as the start of leadership: %s", e.owner, e.proof)
}

// Parked implements what consistency.Parked asks for.
func (e *startError) Parked() bool { return true }

// check returns nil once the caches are proven, and parks the owner before that.
func (s *start) check(owner types.NamespacedName) error {
	if s.done.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done.Load() {
		return nil
	}
	s.holds.park(holdStart, owner, startHold{s, time.Now()})
	return &startError{owner: owner, proof: s.behind}
}

// run proves the caches of the resources one by one, then wakes who waited. It gives up on a resource
// of which nothing can ever be proven, or could be for long.
func (s *start) run(ctx context.Context, p Prover, since time.Time, resources []schema.GroupResource, wake func(types.NamespacedName)) {
	logger := klog.FromContext(ctx)
	began := time.Now()
	for _, resource := range resources {
		if err := s.prove(ctx, p, since, resource, &began); err != nil {
			if ctx.Err() != nil {
				return
			}
			logger.Error(err, "A cache cannot be proven as new as the start of leadership; reconciling without the proof", "controller", s.holds.controller, "resource", resource)
		}
	}
	logger.V(2).Info("Caches are proven as new as the start of leadership", "controller", s.holds.controller, "after", time.Since(since))
	s.mu.Lock()
	s.done.Store(true)
	s.mu.Unlock()
	for owner := range s.holds.releaseAll(holdStart) {
		wake(owner)
	}
}

// prove returns nil once the cache is proven. All resources together are waited for since began, which is put off while one
// is seen to have no first list: until then no controller starts on it.
func (s *start) prove(ctx context.Context, p Prover, since time.Time, resource schema.GroupResource, began *time.Time) error {
	asked, told, limit := time.Now(), false, heldUnknown
	for {
		proof := p.Prove(ctx, resource, since)
		if proof.Reason == freshness.ReasonNotSynced {
			*began = time.Now()
		}
		if proof.Outcome == freshness.Stale {
			limit = heldStale
		}
		left := limit - time.Since(*began)
		switch {
		case proof.Fresh():
			return nil
		case proof.Hopeless(asked), left <= 0:
			return fmt.Errorf("%s", proof)
		case !told && proof.Outcome == freshness.Stale:
			told = true
			klog.FromContext(ctx).Info("A cache is older than the start of leadership; the controllers that read it wait", "resource", resource, "proof", proof.String())
		}
		s.mu.Lock()
		s.behind = proof
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(max(retryStart, proof.RetryAfter), left)):
		}
	}
}
