// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

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
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// retryStart is how often the caches are looked at before a controller's first reconcile.
const retryStart = 100 * time.Millisecond

// start holds a controller's first reconciles back until its caches are proven to be as new as the
// moment at which this process became leader: what an earlier leader wrote is recorded nowhere else
// (gap 17). An informer's first list is a consistent read with WatchList; without it, or when it falls
// back, it may be answered by an apiserver that lags.
type start struct {
	controller string
	done       atomic.Bool

	mu      sync.Mutex
	waiting map[types.NamespacedName]time.Time
	behind  freshness.Proof
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
	if s.waiting == nil {
		s.waiting = map[types.NamespacedName]time.Time{}
	}
	if _, known := s.waiting[owner]; !known {
		s.waiting[owner] = time.Now()
		metrics.Parked(s.controller, metrics.ForStart, len(s.waiting))
	}
	return &startError{owner: owner, proof: s.behind}
}

// giveUp forgets an owner that waits no longer.
func (s *start) giveUp(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, owner)
	metrics.Parked(s.controller, metrics.ForStart, len(s.waiting))
}

// run proves the caches of the resources one by one, then wakes who waited. It gives up on a resource
// of which nothing can ever be proven.
func (s *start) run(ctx context.Context, p prover, since time.Time, resources []schema.GroupResource, wake func(types.NamespacedName)) {
	logger := klog.FromContext(ctx)
	for _, resource := range resources {
		if err := s.prove(ctx, p, since, resource); err != nil {
			if ctx.Err() != nil {
				return
			}
			logger.Error(err, "A cache cannot be proven as new as the start of leadership; going on without", "controller", s.controller, "resource", resource)
		}
	}
	logger.V(2).Info("Caches are proven as new as the start of leadership", "controller", s.controller, "after", time.Since(since))
	s.mu.Lock()
	s.done.Store(true)
	waiting := s.waiting
	s.waiting = nil
	metrics.Parked(s.controller, metrics.ForStart, 0)
	s.mu.Unlock()
	for owner := range waiting {
		wake(owner)
	}
}

func (s *start) prove(ctx context.Context, p prover, since time.Time, resource schema.GroupResource) error {
	began, told := time.Now(), false
	for {
		proof := p.prove(ctx, resource, since)
		switch {
		case proof.Fresh():
			return nil
		case hopeless(proof, began):
			return fmt.Errorf("%s", proof)
		case !told && proof.Outcome == freshness.Stale:
			told = true
			klog.FromContext(ctx).Info("A cache is older than the start of leadership; its controllers wait", "resource", resource, "proof", proof.String())
		}
		s.mu.Lock()
		s.behind = proof
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(retryStart, proof.RetryAfter)):
		}
	}
}

// authorizing is for how long a 403 or 401 may be that of an apiserver that has just started and has not read its
// roles yet. It is asked again until then.
const authorizing = 30 * time.Second

// hopeless reports whether asking again will not help, for a proof that was asked for first at asked.
func hopeless(proof freshness.Proof, asked time.Time) bool {
	if proof.Outcome != freshness.Unknown {
		return false
	}
	switch proof.Reason {
	case freshness.ReasonNotFound, freshness.ReasonIncomparable, freshness.ReasonNotRegistered:
		return true
	case freshness.ReasonForbidden:
		return time.Since(asked) >= authorizing
	}
	return false
}
