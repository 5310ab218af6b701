// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// maxUnsettledReports is how many owners are reported after one proof that failed, and loggedOwners how many of them the log names.
const (
	maxUnsettledReports = 100
	loggedOwners        = 10
)

// startSettling has the resource proven for the owners that are parked. The set's mu must be held.
func (s *Store) startSettling(resource schema.GroupResource) {
	u := &s.unsettled
	if kick, ok := u.settling[resource]; ok {
		look(kick)
		return
	}
	kick := make(chan struct{}, 1)
	u.settling[resource] = kick
	go s.settle(s.ctx, resource, kick)
}

// look has a goroutine look at its owners once more.
func look(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default: // It is to look already.
	}
}

// settle proves a resource until no parked owner needs that, or ctx ends, and wakes the owners. It asks for one proof at
// a time, as of the last loss when it began, for all owners that had lost a write before.
func (s *Store) settle(ctx context.Context, resource schema.GroupResource, kick <-chan struct{}) {
	for {
		upTo, nextAt, more := s.neededUpTo(resource)
		switch {
		case !more:
			return
		case upTo.IsZero():
			timer := time.NewTimer(time.Until(nextAt))
			select {
			case <-ctx.Done():
			case <-timer.C:
			case <-kick:
			}
			timer.Stop()
		default:
			s.settleUpTo(ctx, resource, upTo)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// settleUpTo proves a resource as of a loss, and ends early if no owner needs that any more. It gives up if no proof comes
// although the server accepts writes. Renewals of the leader lease show that it does; without one only the time counts in which the
// server answers.
func (s *Store) settleUpTo(ctx context.Context, resource schema.GroupResource, upTo time.Time) {
	told, nobody := false, false
	patience := &freshness.Patience{Limits: rvtracker.OwnerLimits, Since: upTo, Prove: s.prover.Prove, Pause: s.prover.Wait}
	patience.Uncounted = func(proof freshness.Proof) bool {
		return s.unsettled.renewed == nil && (proof.Reason == freshness.ReasonNoServer || proof.Reason == freshness.ReasonTimeout)
	}
	patience.Waiting = func(proof freshness.Proof) bool {
		waiting, late := s.note(resource, upTo, proof)
		if nobody = waiting == 0; nobody {
			return false
		}
		if !told {
			told = true
			klog.FromContext(ctx).Info("Objects wait for the outcome of writes whose answers were lost", "controller", s.name, "owners", waiting, "resource", resource, "proof", proof.String())
		}
		for i, o := range late {
			s.reports.Report(ctx, rvtracker.Wait{Controller: s.name, Owner: o.name, OwnerUID: o.uid, Resource: resource, Since: o.since,
				SeenRV: s.caches[resource].LastStoreSyncResourceVersion(), ProvenStale: proof.Outcome == freshness.Stale, Further: i >= loggedOwners}, "a proof as of the write whose answer was lost")
		}
		return true
	}
	proof := patience.ProvenWithin(ctx, resource, upTo)
	if ctx.Err() != nil || nobody {
		return
	}
	settled := s.settleOwners(resource, upTo)
	if !proof.Fresh() && len(settled) > 0 {
		klog.FromContext(ctx).Info("The outcome of writes stays unknown; reconciling their owners", "controller", s.name,
			"owners", len(settled), "first", settled[0].name, "resource", resource, "proof", proof.String())
	}
	for _, o := range settled {
		if !proof.Fresh() {
			s.Untracked(o.name, o.uid)
		}
		if o.wake {
			s.wake(o.name)
		}
	}
}

// unsettledName is an owner that was settled, or has to be reported.
type unsettledName struct {
	name  types.NamespacedName
	uid   types.UID
	since time.Time
	wake  bool
}

// needs returns true, and the time that a proof must reach, if a parked owner may be tried again once the resource is proven. mu must be held.
func (s *Store) needs(o *unsettledOwner, resource schema.GroupResource, now time.Time) (at time.Time, ok bool) {
	lost, ok := o.lost[resource]
	if !ok || !o.parked || o.due.After(now) || !s.follow(o) {
		return at, false
	}
	return lost.asOf, true
}

// neededUpTo returns the time that a proof must reach for all parked owners that may be tried again, or zero and when
// there will be such an owner. If more is false, no owner is parked, and the calling goroutine must end.
func (s *Store) neededUpTo(resource schema.GroupResource) (upTo, nextAt time.Time, more bool) {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for _, o := range u.owners {
		if _, lost := o.lost[resource]; !lost || !o.parked {
			continue
		}
		more = true
		if at, ok := s.needs(o, resource, now); ok {
			if at.After(upTo) {
				upTo = at
			}
			continue
		}
		next := o.due
		if !next.After(now) {
			next = now.Add(renewalTick)
		}
		if nextAt.IsZero() || next.Before(nextAt) {
			nextAt = next
		}
	}
	if !more {
		delete(u.settling, resource)
	}
	return upTo, nextAt, more
}

// settleOwners drops the losses of the resource up to a time, for parked owners that may be tried again, and returns these
// owners. It forgets those without other losses; they have to be woken.
func (s *Store) settleOwners(resource schema.GroupResource, upTo time.Time) (settled []unsettledName) {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for name, o := range u.owners {
		at, ok := s.needs(o, resource, now)
		if !ok || at.After(upTo) {
			continue
		}
		s.settledOf(name, o, resource)
		settled = append(settled, unsettledName{name: name, uid: o.uid, wake: len(o.lost) == 0})
		if len(o.lost) == 0 {
			s.settled(name)
		}
	}
	return settled
}

// note keeps why the outcome of the losses up to a time is not known. It returns how many owners that concerns, and which
// of them to report now.
func (s *Store) note(resource schema.GroupResource, upTo time.Time, proof freshness.Proof) (waiting int, late []unsettledName) {
	u := &s.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for name, o := range u.owners {
		at, ok := s.needs(o, resource, now)
		if !ok {
			continue
		}
		s.held.change(func() { o.lost[resource].proof = proof })
		if at.After(upTo) {
			continue
		}
		waiting++
		if !o.reported && now.Sub(o.since) >= reportAfter && len(late) < maxUnsettledReports {
			o.reported = true
			late = append(late, unsettledName{name: name, uid: o.uid, since: o.since})
		}
	}
	return waiting, late
}
