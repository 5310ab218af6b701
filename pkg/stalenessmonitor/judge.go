// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"fmt"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// evaluate finds the state from what is known, and logs and counts a change.
func (c *probed) evaluate(ctx context.Context) {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	c.evaluateBy(ctx, proof, proven)
}

func (c *probed) evaluateBy(ctx context.Context, proof freshness.Proof, proven bool) {
	received := c.informer.LastSyncResourceVersion()
	now, outage := time.Now(), c.m.outage(time.Now())
	c.mu.Lock()
	knownFor := c.knownFor(now)
	if outage {
		knownFor = min(knownFor, outageAfter)
	}
	if proven || !c.state.healthy() {
		c.lost = time.Time{}
	} else if c.lost.IsZero() {
		c.lost = now
	}
	state, reason, detail := c.judge(proof, proven, received, now, knownFor)
	was, since := c.state, c.since
	changed := state != was || reason != c.reason
	c.detail = detail
	if changed {
		c.state, c.reason = state, reason
	}
	if state != was {
		c.since = now
	}
	lag := c.lag(c.stored, received)
	c.mu.Unlock()
	if state != was && reason != reasonNotFound {
		c.m.opts.Metrics.Entered(c.gvr, string(state))
	}
	if changed {
		c.logChange(ctx, was, state, reason, detail, now.Sub(since), proof, proven, lag)
	}
}

// judge must be called with mu held.
func (c *probed) judge(proof freshness.Proof, proven bool, received string, now time.Time, knownFor time.Duration) (state State, reason, detail string) {
	newest := c.fences[0]
	switch {
	case c.failure == reasonNotFound:
		return Unknown, reasonNotFound, "the server does not serve the resource"
	case c.stored == "":
		return Unknown, ReasonNotSynced, "the informer has not finished its first list"
	case !proven && proof.Reason == freshness.ReasonRewind:
		return Stalled, ReasonRewind, "the server's resource versions went backward and the informer has not relisted"
	case newest.TakenAt.IsZero() && c.failures == 0:
		return Unknown, ReasonNotProbed, "no fence has been taken yet"
	case proven && c.failures < 2 && now.Sub(proof.At) <= knownFor && !newest.TakenAt.IsZero() && !proof.At.Before(newest.TakenAt) && !c.lacksSince(newest):
		c.missing, c.missed, c.late, c.undecided = "", 0, time.Time{}, 0
		if freshness.Less(c.stored, newest.ResourceVersion) {
			return Quiet, "", ""
		}
		return Fresh, "", ""
	case c.behind(proof, proven, now):
		state, reason = Lagging, ReasonWatch
		if now.Sub(c.moved) >= Period {
			state = Stalled
		}
		awaited := c.missing
		if awaited == "" || freshness.Passed(c.stored, awaited) {
			awaited = newest.ResourceVersion
		}
		detail = "events arrive late"
		if c.missing != "" {
			detail = fmt.Sprintf("at least %d changes are missing, the first at resource version %s", c.missed, c.missing)
		}
		if freshness.Less(c.stored, received) && freshness.Passed(received, awaited) {
			reason = ReasonQueue
		}
		return state, reason, detail
	case c.failures >= 2:
		return Unknown, c.failure, c.failureErr
	case c.undecided >= 2:
		return Unknown, c.undecidedFor, c.undecidedBy
	case c.state.healthy() && !proven && now.Sub(c.lost) >= lostFor:
		return c.unanswered("the last proof no longer holds for the cache")
	case c.state.healthy() && proven && now.Sub(proof.At) > knownFor:
		return c.unanswered(fmt.Sprintf("the server has answered no probe for %v", knownFor))
	}
	return c.state, c.reason, c.detail
}

// unanswered is the state of a cache about which nothing is known any more. mu must be held.
func (c *probed) unanswered(why string) (state State, reason, detail string) {
	switch {
	case c.failures > 0:
		return Unknown, c.failure, c.failureErr
	case c.undecided > 0:
		return Unknown, c.undecidedFor, c.undecidedBy
	}
	return Unknown, string(freshness.ReasonTimeout), why
}
