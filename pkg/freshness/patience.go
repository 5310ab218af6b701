// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// Patience is how, and for how long, a proof is waited for.
type Patience struct {
	// Limits count from Since.
	Limits rvtracker.Limits
	Since  time.Time
	// Prove asks for a proof, and Pause returns when it may be worth asking again, or its context ends.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) Proof
	Pause func(ctx context.Context, resource schema.GroupResource, proof Proof)
	// Cut has a request that is not answered by then be given up at the limit.
	Cut bool
	// Uncounted, unless nil, says of an answer that the time up to it does not count.
	Uncounted func(Proof) bool
	// Waiting, unless nil, is called before each pause. If it is false nobody waits for the proof any more.
	Waiting func(Proof) bool
}

// ProvenWithin waits until the cache of a resource is proven as of a time, and returns the proof. It returns the last answer without one
// once nothing can ever be proven, the limit is reached, nobody waits any more, or ctx ends. What was shown to be stale counts as stale until
// it is proven, whatever fails meanwhile.
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
