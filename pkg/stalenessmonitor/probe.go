// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	// confirmWait is how long a cache that moves is given to pass its fence before it is asked about.
	confirmWait = 1500 * time.Millisecond
	// lateWait is how much longer a cache is given that moves, or was late the last time, so that its events
	// answer and no watch is needed.
	lateWait = time.Second
	// refusedWait is how long a resource is not asked about that only an operator can mend.
	refusedWait = 30 * time.Second
	// maxBackoff bounds how long a server that pushes back is left alone.
	maxBackoff = 8 * Period

	reasonNotFound = string(freshness.ReasonNotFound)
)

// run probes the cache until ctx ends.
func (c *probed) run(ctx context.Context) {
	period := c.m.period()
	due := time.Now().Add(phase(c.gvr, period))
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait := c.probe(ctx)
		if due = due.Add(wait); due.Before(time.Now()) {
			due = time.Now()
		}
	}
}

// probe asks once how old the cache is, and returns after what time to ask again.
func (c *probed) probe(ctx context.Context) time.Duration {
	period := c.m.period()
	if c.informer.GetStore().LastStoreSyncResourceVersion() == "" {
		return sampleEvery // There is nothing yet that could be old.
	}
	began := time.Now()
	outcome, wait := c.ask(ctx, period)
	if ctx.Err() != nil {
		return wait
	}
	if outcome != reasonNotFound {
		c.m.opts.Metrics.Probed(c.gvr, outcome, time.Since(began))
	}
	c.evaluate(ctx)
	return wait
}

func (c *probed) ask(ctx context.Context, period time.Duration) (outcome string, wait time.Duration) {
	c.begin()
	fence, err := c.m.opts.Prover.Fence(ctx, c.gvr)
	if err != nil {
		return c.failed(ctx, err, period)
	}
	c.fenced(ctx, fence)
	stored, patience := c.informer.GetStore().LastStoreSyncResourceVersion(), confirmWait
	if c.wasLate() {
		patience += lateWait
	}
	_, confirmed := c.m.opts.Prover.Confirm(ctx, c.gvr, fence.TakenAt, patience)
	if !confirmed && patience == confirmWait && freshness.Less(stored, c.informer.GetStore().LastStoreSyncResourceVersion()) {
		_, confirmed = c.m.opts.Prover.Confirm(ctx, c.gvr, fence.TakenAt, lateWait)
	}
	if confirmed {
		c.wasOnTime(time.Since(fence.TakenAt) < confirmWait)
		c.evaluate(ctx)
		return string(c.current()), period
	}
	if c.knownBehind() {
		return string(Lagging), period
	}
	proof, err := c.m.opts.Prover.ProveByWatch(ctx, c.gvr, fence.TakenAt)
	switch proof.Outcome {
	case freshness.Proven:
		if c.caughtUp() {
			return string(c.current()), period
		}
		return string(Quiet), 2 * period // The watch was one request more.
	case freshness.Stale:
		c.found(ctx, proof)
		return string(Stalled), period
	}
	c.inconclusive(proof, err)
	return string(proof.Reason), max(2*period, proof.RetryAfter)
}

// failed notes a fence that got no answer.
func (c *probed) failed(ctx context.Context, err error, period time.Duration) (outcome string, wait time.Duration) {
	var failure *freshness.Error
	if !errors.As(err, &failure) {
		failure = &freshness.Error{Resource: c.gvr, Reason: freshness.ReasonTimeout, Err: err}
	}
	c.mu.Lock()
	c.failures++
	n := c.failures
	gone := failure.Reason == freshness.ReasonNotFound && c.failure != reasonNotFound
	c.failure, c.failureErr = string(failure.Reason), fmt.Sprint(failure.Err)
	c.mu.Unlock()
	if gone {
		c.m.opts.Metrics.Unwatched(c.gvr)
		klog.FromContext(ctx).Info("The server does not serve a resource any more; its cache cannot be measured", "resource", c.gvr)
	}
	switch failure.Reason {
	case freshness.ReasonNoServer:
		wait = period // Nobody is burdened by asking.
	case freshness.ReasonForbidden, freshness.ReasonNotFound, freshness.ReasonIncomparable:
		wait = refusedWait
	default:
		wait = min(period<<min(n, 10), maxBackoff)
	}
	return string(failure.Reason), max(wait, failure.RetryAfter)
}
