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
	// confirmWait is how long a cache is given to pass its fence before it is asked about, and moveWait how
	// much longer if it moves, so that its events answer and no watch is needed.
	confirmWait = 1500 * time.Millisecond
	moveWait    = 1500 * time.Millisecond
	// watchTime is what a watch that proves a cache quiet takes at most, if it is answered at once.
	watchTime = freshness.DefaultWatchSeconds * time.Second
	// boundSlack is by how much the age of a quiet cache may exceed two periods; see doc.go.
	boundSlack = 5 * time.Second
	// refusedWait is how long a resource is not asked about that only an operator can mend.
	refusedWait = 30 * time.Second
	// maxBackoff bounds how long a server that pushes back is left alone.
	maxBackoff = 8 * Period

	reasonNotFound = string(freshness.ReasonNotFound)
)

// run probes the cache until ctx ends.
func (c *probed) run(ctx context.Context) {
	due := time.Now().Add(phase(c.gvr, c.m.period()))
	for {
		timer := time.NewTimer(time.Until(due))
		var given freshness.Fence
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case given = <-c.given:
			timer.Stop()
			if !c.isNews(given) {
				continue
			}
			due = given.TakenAt
		case <-timer.C:
		}
		wait := c.probe(ctx, given)
		if due = due.Add(wait); due.Before(time.Now()) {
			due = time.Now()
		}
	}
}

// probe asks once how old the cache is, with the fence given, or else one of its own, and returns after what
// time to ask again.
func (c *probed) probe(ctx context.Context, given freshness.Fence) time.Duration {
	period := c.m.period()
	if c.informer.GetStore().LastStoreSyncResourceVersion() == "" {
		return sampleEvery // There is nothing yet that could be old.
	}
	began := time.Now()
	outcome, wait := c.ask(ctx, given, period)
	if ctx.Err() != nil {
		return wait
	}
	if outcome != reasonNotFound {
		c.m.opts.Metrics.Probed(c.gvr, outcome, time.Since(began))
	}
	c.evaluate(ctx)
	return wait
}

func (c *probed) ask(ctx context.Context, fence freshness.Fence, period time.Duration) (outcome string, wait time.Duration) {
	c.begin()
	own := fence.TakenAt.IsZero()
	if own {
		var err error
		if fence, err = c.m.opts.Prover.Fence(ctx, c.gvr); err != nil {
			outcome, wait = c.failed(ctx, err, period)
			return outcome, c.fromNow(wait)
		}
	}
	c.fenced(ctx, fence)
	stored := c.informer.GetStore().LastStoreSyncResourceVersion()
	_, confirmed := c.m.opts.Prover.Confirm(ctx, c.gvr, fence.TakenAt, confirmWait)
	if !confirmed && c.moves(stored) && c.hasTime(period) {
		_, confirmed = c.m.opts.Prover.Confirm(ctx, c.gvr, fence.TakenAt, moveWait)
	}
	if confirmed {
		c.evaluate(ctx)
		return string(c.current()), period
	}
	if c.knownBehind() {
		return string(Lagging), period
	}
	if !own && time.Since(c.watched) < 2*period {
		return string(c.current()), period // However often others take fences, watches stay rare.
	}
	c.watched = time.Now()
	proof, err := c.m.opts.Prover.ProveByWatch(ctx, c.gvr, fence.TakenAt)
	switch proof.Outcome {
	case freshness.Proven:
		if proof.Ahead != "" && !c.gets(ctx, proof.Ahead) {
			// All up to the fence is there, but nothing after it comes.
			proof.ResourceVersion, proof.Events = proof.Ahead, 1
			c.found(ctx, proof)
			return string(c.current()), period
		}
		c.evaluate(ctx)
		if c.wasLate() {
			return string(c.current()), period // Or the age would exceed what is promised of a busy resource.
		}
		return string(c.current()), 2 * period // The watch was one request more.
	case freshness.Stale:
		c.found(ctx, proof)
		return string(Stalled), period
	}
	c.inconclusive(proof, err)
	return string(proof.Reason), c.fromNow(max(2*period, proof.RetryAfter))
}

// fromNow is the wait from the beginning of the probe that is one of d from now: what has failed late is not asked
// for again at once.
func (c *probed) fromNow(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began) + d
}

// gets gives the cache lateBy to pass an RV that the server has shown.
func (c *probed) gets(ctx context.Context, rv string) bool {
	for end := time.Now().Add(lateBy); ; {
		switch {
		case freshness.Passed(c.informer.GetStore().LastStoreSyncResourceVersion(), rv):
			return true
		case ctx.Err() != nil, !time.Now().Before(end):
			return false
		}
		time.Sleep(lateBy / 20)
	}
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
