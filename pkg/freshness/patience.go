// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// Patience is how, and for how long, to wait for a proof.
type Patience struct {
	// Limits count from Since.
	Limits rvtracker.Limits
	Since  time.Time
	// Prove asks for a proof. Pause returns when another try may succeed, or its context ends.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) Proof
	Pause func(ctx context.Context, resource schema.GroupResource, proof Proof)
	// Cut ends a request that is not answered at the limit.
	Cut bool
	// Uncounted, unless nil, says whether the limits start again after an answer.
	Uncounted func(Proof) bool
	// Waiting, unless nil, is called before each pause. If it returns false the wait ends.
	Waiting func(Proof) bool
}

// ProvenWithin waits until the cache of a resource is proven as of a time, and returns the proof. It returns the last answer, which proves
// nothing, once nothing can ever be proven, the limit is reached, Waiting returns false, or ctx ends. A cache that was shown to be stale
// counts as stale until it is proven, whatever fails meanwhile.
func (p *Patience) ProvenWithin(ctx context.Context, resource schema.GroupResource, asOf time.Time) Proof {
	asked, last := time.Now(), Proof{}
	for {
		answer := p.ask(ctx, resource, asOf, last.Outcome == Stale)
		if p.Uncounted != nil && p.Uncounted(answer) {
			p.Since = time.Now()
		}
		if answer.Outcome != Unknown || last.Outcome != Stale {
			last = answer
		}
		left := time.Until(p.limit(last.Outcome == Stale))
		if last.Fresh() || ctx.Err() != nil || answer.Hopeless(asked) || left <= 0 || p.Waiting != nil && !p.Waiting(last) {
			return last
		}
		pause, cancel := context.WithTimeout(ctx, left)
		p.Pause(pause, resource, answer)
		cancel()
	}
}

func (p *Patience) ask(ctx context.Context, resource schema.GroupResource, asOf time.Time, stale bool) Proof {
	if p.Cut {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, p.limit(stale))
		defer cancel()
	}
	return p.Prove(ctx, resource, asOf)
}

func (p *Patience) limit(stale bool) time.Time { return p.Since.Add(p.Limits.Of(stale)) }
