// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// retryStart is how often start asks for a proof.
const retryStart = 100 * time.Millisecond

// holdStartOf has all owners wait until the controller's caches, of which first is the first, are proven as new as the moment at which this
// process became leader, because writes of an earlier leader are not recorded (gap 17). An informer's first list is a consistent read with
// WatchList; without it, or when the informer falls back, an apiserver that lags may answer.
func (l *holds) holdStartOf(since time.Time, first schema.GroupResource) *hold {
	all := &hold{reason: stalenessz.ForStart, resource: first, asOf: since, since: since}
	l.all.Store(all)
	return all
}

// start proves the caches of the resources one by one, then wakes the owners that wait. It gives up on a resource if nothing
// can ever be proven about it, or nothing could for long. One limit counts for all resources together, from the last time that one had no
// first list: until then the controller does not start.
func (s *Store) start(ctx context.Context, p Prover, all *hold, resources []schema.GroupResource) {
	logger := klog.FromContext(ctx)
	patience := &freshness.Patience{
		Limits: rvtracker.OwnerLimits, Since: time.Now(), Prove: p.Prove,
		Pause: func(ctx context.Context, _ schema.GroupResource, proof freshness.Proof) {
			select {
			case <-ctx.Done():
			case <-time.After(max(retryStart, proof.RetryAfter)):
			}
		},
		Uncounted: func(proof freshness.Proof) bool { return proof.Reason == freshness.ReasonNotSynced },
	}
	proven := true
	for _, resource := range resources {
		s.held.change(func() { all.resource, all.proof = resource, freshness.Proof{} })
		told := false
		patience.Waiting = func(proof freshness.Proof) bool {
			s.held.change(func() { all.proof = proof })
			if !told && proof.Outcome == freshness.Stale {
				told = true
				logger.Info("A cache is older than the start of leadership; the controllers that read it wait", "resource", resource, "proof", proof.String())
			}
			return true
		}
		proof := patience.ProvenWithin(ctx, resource, all.asOf)
		switch {
		case ctx.Err() != nil:
			return
		case !proof.Fresh():
			proven = false
			logger.Error(nil, "A cache is not proven as new as the start of leadership; its objects are reconciled without the proof", "controller", s.name,
				"resource", resource, "proof", proof.String())
		}
	}
	if proven {
		logger.V(2).Info("Caches are proven as new as the start of leadership", "controller", s.name, "after", time.Since(all.asOf))
	}
	for owner := range s.held.releaseAll() {
		s.wake(owner)
	}
}
