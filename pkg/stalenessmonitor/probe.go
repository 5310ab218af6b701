// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	// passWait is how long a cache has to pass its fence, or to equal its list, before the next request or before it counts as
	// behind, and moveWait how much longer it has if it moves: its events may make a watch unnecessary.
	passWait = 1500 * time.Millisecond
	moveWait = 1500 * time.Millisecond
	// watchTime is how long a watch that proves a cache quiet takes at most, if the server answers at once.
	watchTime = freshness.WatchSeconds * time.Second
	// flowsEvery is how often a watch shows whether events flow, while a cache is behind by a list: as often as its watches are ended, at most.
	flowsEvery = 30 * time.Second
	// recentFence is the age up to which a watch can use an earlier fence.
	recentFence = time.Second
	// refusedWait is the delay after a failure that only an operator can mend.
	refusedWait = 30 * time.Second
	// failedWait is the delay after another failure. It doubles with each in a row, up to maxBackoff.
	failedWait = 10 * time.Second
	maxBackoff = 40 * time.Second

	reasonNotFound = string(freshness.ReasonNotFound)
)

// probe finds once how old the cache is.
func (c *probed) probe(ctx context.Context) {
	c.begin()
	outcome := c.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	if outcome != reasonNotFound {
		c.m.opts.Metrics.Probed(c.gvr, outcome)
	}
	c.evaluate(ctx)
}

// ask returns the state that it has found, or the reason why it found none.
func (c *probed) ask(ctx context.Context) (outcome string) {
	c.mu.Lock()
	way, every := c.way(time.Now())
	fence := c.fences[0].Fence
	healthy := c.state.healthy()
	c.mu.Unlock()
	hurried := true
	switch {
	case way == byList:
		return c.byList(ctx, time.Now())
	case way != byWatch || time.Since(fence.TakenAt) > recentFence:
		c.m.sends()
		var err error
		if fence, err = c.m.opts.Prover.Fence(ctx, c.gvr); err != nil {
			return c.failed(ctx, err)
		}
		c.m.answers()
		c.fenced(ctx, fence)
		var ok bool
		if ok, hurried = c.passes(ctx, fence, way == byWatch && every == stillEvery); ok {
			c.evaluate(ctx)
			return string(c.current())
		}
		if c.knownBehind() {
			c.askFlows(ctx, fence)
			return string(Lagging)
		}
		c.again()
	}
	if c.listable() {
		return c.byList(ctx, fence.TakenAt)
	}
	return c.byWatch(ctx, fence, hurried && healthy)
}

// passes waits for the cache to pass its fence, if there is time. hurried is true if the cache had less than passWait.
func (c *probed) passes(ctx context.Context, fence freshness.Fence, still bool) (ok, hurried bool) {
	stored := c.informer.GetStore().LastStoreSyncResourceVersion()
	wait := max(0, min(passWait, c.timeLeft()))
	if still {
		wait = 0 // Nothing is expected.
	}
	if _, ok := c.m.opts.Prover.AwaitFence(ctx, c.gvr, fence.TakenAt, wait); ok || wait < passWait {
		return ok, wait < passWait
	}
	if c.moves(stored) && c.timeLeft() >= moveWait {
		_, ok = c.m.opts.Prover.AwaitFence(ctx, c.gvr, fence.TakenAt, moveWait)
	}
	return ok, false
}

// timeLeft is how long the monitor may wait for a healthy cache before a list or a watch, so that its age
// stays within Bound.
func (c *probed) timeLeft() time.Duration {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.protected || !proven || !c.state.healthy() {
		return time.Hour
	}
	rest := watchTime
	if c.objects <= smallList && c.undecided == 0 {
		rest = passWait
	}
	return time.Duration(float64(Bound)*c.stretch) - time.Since(proof.At) - rest
}

func (c *probed) listable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects <= smallList && c.undecided == 0
}

// again notes that the probe makes one more request.
func (c *probed) again() {
	c.m.pace.spend()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
}

// byList lists the collection, which is fence and proof in one.
func (c *probed) byList(ctx context.Context, asOf time.Time) (outcome string) {
	c.m.sends()
	proof, err := c.m.opts.Prover.ProveByList(ctx, c.gvr, asOf, passWait)
	return c.concluded(ctx, proof, err, true)
}

// byWatch makes a short watch, which shows the events up to the fence. A cache that had no time to pass the
// fence has time now to pass what the watch shows.
func (c *probed) byWatch(ctx context.Context, fence freshness.Fence, wait bool) (outcome string) {
	c.m.sends()
	proof, err := c.m.opts.Prover.ProveByWatch(ctx, c.gvr, fence.TakenAt)
	if proof.Outcome == freshness.Proven && proof.Ahead != "" && !c.gets(ctx, proof.Ahead) {
		// All up to the fence is there, but nothing after it comes.
		proof.Outcome, proof.ResourceVersion, proof.Events = freshness.Stale, proof.Ahead, 1
	} else if wait && proof.Outcome == freshness.Stale && c.gets(ctx, proof.ResourceVersion) {
		proof = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonRegressed, Err: errors.New("the cache moved")}
	}
	return c.concluded(ctx, proof, err, false)
}

// concluded notes what a list or a watch has shown.
func (c *probed) concluded(ctx context.Context, proof freshness.Proof, err error, listed bool) (outcome string) {
	if proof.Outcome != freshness.Unknown || !unreached(proof.Reason) {
		c.m.answers()
	}
	switch proof.Outcome {
	case freshness.Proven:
		c.mu.Lock()
		c.failures, c.failure, c.failureErr, c.undecided = 0, "", "", 0
		c.mu.Unlock()
		c.evaluate(ctx)
		return string(c.current())
	case freshness.Stale:
		c.found(ctx, proof)
		return string(Stalled)
	}
	if undecided[proof.Reason] || !listed {
		return c.inconclusive(proof, err)
	}
	return c.failed(ctx, &freshness.Error{Resource: c.gvr, Reason: proof.Reason, RetryAfter: proof.RetryAfter, Err: cmp.Or(err, proof.Err)})
}

// undecided are the reasons why a list that the server answered has shown nothing. A watch may show more.
var undecided = map[freshness.Reason]bool{
	freshness.ReasonRegressed: true, freshness.ReasonTooMany: true, freshness.ReasonRewind: true,
	freshness.ReasonNotSynced: true, freshness.ReasonNotRegistered: true,
}

// askFlows makes a watch, once in flowsEvery, for a cache that only a list has shown to be behind: the server's watches may bring
// nothing to anybody.
func (c *probed) askFlows(ctx context.Context, fence freshness.Fence) {
	c.mu.Lock()
	ask := c.lacks() && !c.flows && c.objects > smallList && time.Since(c.flowsAsked) >= flowsEvery
	if ask {
		c.flowsAsked = time.Now()
	}
	c.mu.Unlock()
	if !ask {
		return
	}
	c.again()
	c.m.sends()
	proof, _ := c.m.opts.Prover.ProveByWatch(ctx, c.gvr, fence.TakenAt)
	if proof.Outcome != freshness.Unknown || !unreached(proof.Reason) {
		c.m.answers()
	}
	if proof.ByWatch() {
		c.found(ctx, proof)
	}
}

// gets reports whether the cache passes, within lateBy, an RV that the server has shown.
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

// inconclusive notes a list or a watch that has shown nothing, or a watch that failed.
func (c *probed) inconclusive(proof freshness.Proof, err error) (outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.undecided++
	c.undecidedFor, c.undecidedBy = string(proof.Reason), fmt.Sprint(cmp.Or(err, proof.Err))
	c.unreached = unreached(proof.Reason)
	wait := failedWait
	if undecided[proof.Reason] {
		wait = Period
	}
	if c.undecided > 1 {
		wait = c.later(now, wait)
	}
	c.retry = now.Add(max(wait, proof.RetryAfter))
	return string(proof.Reason)
}

// failed notes a fence or a list that got no answer, or that the server refused.
func (c *probed) failed(ctx context.Context, err error) (outcome string) {
	var failure *freshness.Error
	if !errors.As(err, &failure) {
		failure = &freshness.Error{Resource: c.gvr, Reason: freshness.ReasonTimeout, Err: err}
	}
	if !unreached(failure.Reason) {
		c.m.answers()
	}
	c.mu.Lock()
	now := time.Now()
	c.failures++
	gone := failure.Reason == freshness.ReasonNotFound && c.failure != reasonNotFound
	c.failure, c.failureErr = string(failure.Reason), fmt.Sprint(failure.Err)
	c.unreached = unreached(failure.Reason)
	var wait time.Duration
	switch failure.Reason {
	case freshness.ReasonNoServer:
		wait = failedWait // Requests burden no server then.
	case freshness.ReasonForbidden, freshness.ReasonNotFound, freshness.ReasonIncomparable:
		wait = c.later(now, refusedWait)
	default:
		wait = min(failedWait<<min(c.failures-1, 10), maxBackoff)
	}
	if c.failures > 1 {
		wait = c.later(now, wait)
	}
	c.retry = now.Add(max(wait, failure.RetryAfter))
	c.mu.Unlock()
	if gone {
		c.m.opts.Metrics.Unwatched(c.gvr)
		klog.FromContext(ctx).Info("The server no longer serves a resource; its cache is not measured", "resource", c.gvr)
	}
	return string(failure.Reason)
}

// later is no sooner than the next turn of a healthy cache, so that a failing one takes no turns of the
// others. mu must be held.
func (c *probed) later(now time.Time, wait time.Duration) time.Duration {
	return max(wait, c.every(now))
}
