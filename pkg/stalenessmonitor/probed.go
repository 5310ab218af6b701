// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	// lateBy is by how much an event must come late to show that a cache lags.
	lateBy = time.Second
	// knownPeriods is for how many of the monitor's periods a proof says that a cache is fresh or quiet, if nothing
	// is answered any more. It is time for a probe of a quiet cache that times out, and another.
	knownPeriods = 7
	// keptGaps is how many times between moves tell a busy resource from one with events now and then, and
	// busyGap how long they are at most, but for one.
	keptGaps = 8
	busyGap  = 2500 * time.Millisecond
)

// probed is one cache. Its run goroutine probes; the monitor's goroutine samples.
type probed struct {
	m        *Monitor
	gvr      schema.GroupVersionResource
	informer Informer
	stop     context.CancelFunc
	// given is the newest fence that was taken meanwhile.
	given chan freshness.Fence
	// watched is when the last watch was asked for. It is the run goroutine's.
	watched time.Time

	mu     sync.Mutex
	state  State
	reason string
	detail string
	since  time.Time
	// began is when the last probe did.
	began time.Time
	// fences are the newest two, with the time of the answer.
	fences [2]answeredFence
	// stored is the store's RV at the last sample, sampled; it came there by moved.
	stored         string
	moved, sampled time.Time
	// gaps are the last times between two moves of the store, in a ring with the next at nextGap.
	gaps    [keptGaps]time.Duration
	nextGap int
	// missing is an RV that a proof has shown the cache to lack, missed how many changes at least.
	missing string
	missed  int
	// late is when the cache was last seen to get an event late.
	late time.Time
	// failures counts fences in a row without an answer, undecided watches that said nothing.
	failures, undecided       int
	failure, failureErr       string
	undecidedFor, undecidedBy string
	rewound                   bool
	history                   []Sample
}

type answeredFence struct {
	freshness.Fence
	answered time.Time
}

func (c *probed) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = time.Now()
}

// give hands a fence to the run goroutine, in place of an older one.
func (c *probed) give(f freshness.Fence) {
	c.takeBack()
	select {
	case c.given <- f:
	default:
	}
}

// takeBack drops the fence that the run goroutine has yet to look at.
func (c *probed) takeBack() {
	select {
	case <-c.given:
	default:
	}
}

// isNews is true of a fence that the cache was not probed with yet.
func (c *probed) isNews(f freshness.Fence) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.TakenAt.After(c.fences[0].TakenAt)
}

func (c *probed) fenced(ctx context.Context, f freshness.Fence) {
	c.mu.Lock()
	back := c.failure == reasonNotFound
	c.fences[1], c.fences[0] = c.fences[0], answeredFence{f, time.Now()}
	c.failures, c.failure, c.failureErr = 0, "", ""
	state := c.state
	c.mu.Unlock()
	if back {
		c.m.opts.Metrics.Watched(c.gvr)
		c.m.opts.Metrics.Entered(c.gvr, state)
		klog.FromContext(ctx).Info("The server serves a resource again", "resource", c.gvr)
	}
}

// found notes a proof that something is missing.
func (c *probed) found(ctx context.Context, proof freshness.Proof) {
	c.mu.Lock()
	c.missing, c.missed, c.undecided = proof.ResourceVersion, proof.Events, 0
	c.mu.Unlock()
	c.sample(ctx)
}

func (c *probed) inconclusive(proof freshness.Proof, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = proof.Err
	}
	c.undecided++
	c.undecidedFor, c.undecidedBy = string(proof.Reason), fmt.Sprint(err)
}

// rewind forgets what was of the history that is gone.
func (c *probed) rewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewound = true
	c.missing, c.missed, c.late = "", 0, time.Time{}
	c.fences = [2]answeredFence{}
	c.takeBack()
}

// sample looks at how far the store is. An event that the store gets although a fence had passed it more
// than a second before has come late, which no request is needed to know.
func (c *probed) sample(ctx context.Context) {
	rv := c.informer.GetStore().LastStoreSyncResourceVersion()
	now := time.Now()
	c.mu.Lock()
	late := c.passedByFence(rv)
	known := now.Sub(c.late) < Period
	c.mu.Unlock()
	late = late && (known || c.holds(rv))
	c.mu.Lock()
	if rv != c.stored {
		if late {
			c.late = now
		}
		if !c.moved.IsZero() {
			c.gaps[c.nextGap] = now.Sub(c.moved)
			c.nextGap = (c.nextGap + 1) % keptGaps
		}
		c.stored, c.moved = rv, now
	}
	c.sampled = now
	c.mu.Unlock()
	c.evaluate(ctx)
}

// passedByFence reports whether a fence that was answered more than lateBy before the last sample has passed an RV
// that the store did not have then. mu must be held.
func (c *probed) passedByFence(rv string) bool {
	for _, f := range c.fences {
		if c.stored != "" && freshness.Less(c.stored, rv) && freshness.Less(rv, f.ResourceVersion) && !c.sampled.Before(f.answered.Add(lateBy)) {
			return true
		}
	}
	return false
}

// holds reports whether an object has this RV, so that it was an event that took the store there. A bookmark that is
// behind a fence is none: that is where an apiserver begins that the client has just moved to. It costs time in
// proportion to the objects, and what a late deletion tells is left to the watch that is taken then.
func (c *probed) holds(rv string) bool {
	for _, object := range c.informer.GetStore().List() {
		if accessor, err := meta.Accessor(object); err == nil && accessor.GetResourceVersion() == rv {
			return true
		}
	}
	return false
}

// moves is true if the store has moved not long ago, or since it was at stored: it may be given time.
func (c *probed) moves(stored string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.moved) < Period || freshness.Less(stored, c.informer.GetStore().LastStoreSyncResourceVersion())
}

// hasTime is false if a healthy cache that is given moveWait more, and is asked about by a watch then, may outgrow the
// bound of a quiet one's age before the watch ends: so it is after a fence that was left out.
func (c *probed) hasTime(period time.Duration) bool {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	return !proven || !c.current().healthy() || time.Since(proof.At)+moveWait+watchTime <= 2*period+boundSlack
}

// wasLate reports, after a watch was taken, that it was needed only because a busy cache was late: it has
// passed the fence itself by now.
func (c *probed) wasLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	long := 0
	for _, gap := range c.gaps {
		if gap == 0 || gap > busyGap {
			long++
		}
	}
	return long <= 1 && freshness.Passed(c.informer.GetStore().LastStoreSyncResourceVersion(), c.fences[0].ResourceVersion)
}

// knownBehind is true if the cache is known to lack something without asking.
func (c *probed) knownBehind() bool {
	proof, ok := c.m.opts.Prover.Known(c.gvr)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind(proof, ok, time.Now())
}

// lacksSince is true if the cache is known to lack something that came after a fence. mu must be held.
func (c *probed) lacksSince(f answeredFence) bool {
	return c.missing != "" && freshness.Less(f.ResourceVersion, c.missing) && !freshness.Passed(c.stored, c.missing)
}

func (c *probed) behind(proof freshness.Proof, proven bool, now time.Time) bool {
	if c.missing != "" && !freshness.Passed(c.stored, c.missing) {
		return true
	}
	return !c.late.IsZero() && now.Sub(c.late) < Period && (!proven || proof.At.Before(c.late))
}

// evaluate finds the state from what is known, and says so if it has changed.
func (c *probed) evaluate(ctx context.Context) {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	received := c.informer.LastSyncResourceVersion()
	now, knownFor := time.Now(), knownPeriods*c.m.period()
	c.mu.Lock()
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
	lag := c.lag(received)
	c.mu.Unlock()
	if state != was && reason != reasonNotFound {
		c.m.opts.Metrics.Entered(c.gvr, state)
	}
	if changed {
		c.tell(ctx, was, state, reason, detail, now.Sub(since), proof, proven, lag)
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
	case c.rewound && !proven:
		return Stalled, ReasonRewind, "the server's resource versions went backward and the informer has not listed anew"
	case newest.TakenAt.IsZero() && c.failures == 0:
		return Unknown, ReasonNotProbed, "no fence has been taken yet"
	case proven && c.failures < 2 && now.Sub(proof.At) <= knownFor && !newest.TakenAt.IsZero() && !proof.At.Before(newest.TakenAt) && !c.lacksSince(newest):
		c.missing, c.missed, c.late, c.undecided, c.rewound = "", 0, time.Time{}, 0, false
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
		detail = "events come late"
		if c.missing != "" {
			detail = fmt.Sprintf("lacks %d changes or more, the first at resource version %s", c.missed, c.missing)
		}
		if freshness.Less(c.stored, received) && freshness.Passed(received, awaited) {
			reason = ReasonQueue
		}
		return state, reason, detail
	case c.failures >= 2:
		return Unknown, c.failure, c.failureErr
	case c.undecided >= 2:
		return Unknown, c.undecidedFor, c.undecidedBy
	case c.state.healthy() && !proven:
		return c.unanswered("what was proven no longer holds for the cache")
	case c.state.healthy() && now.Sub(proof.At) > knownFor:
		return c.unanswered(fmt.Sprintf("nothing has been answered for %v", knownFor))
	}
	return c.state, c.reason, c.detail
}

// unanswered is the state of a cache of which nothing is known any more. mu must be held.
func (c *probed) unanswered(why string) (state State, reason, detail string) {
	switch {
	case c.failures > 0:
		return Unknown, c.failure, c.failureErr
	case c.undecided > 0:
		return Unknown, c.undecidedFor, c.undecidedBy
	}
	return Unknown, string(freshness.ReasonTimeout), why
}

// lag must be called with mu held.
func (c *probed) lag(received string) Lag {
	if c.state != Lagging && c.state != Stalled {
		return Lag{}
	}
	return Lag{Watch: freshness.Distance(received, c.fences[0].ResourceVersion), Queue: freshness.Distance(c.stored, received)}
}

func (c *probed) tell(ctx context.Context, was, state State, reason, detail string, lasted time.Duration, proof freshness.Proof, proven bool, lag Lag) {
	values := []any{"resource", c.gvr, "state", state, "was", was, "for", lasted.Round(time.Millisecond)}
	if proven {
		values = append(values, "provenAge", time.Since(proof.At).Round(time.Millisecond))
	}
	logger := klog.FromContext(ctx)
	switch {
	case state.healthy() && (was.healthy() || was == Unknown):
		logger.V(3).Info("An informer's cache is known to be complete", values...)
	case state.healthy():
		logger.Info("An informer's cache is complete again", values...)
	case state == Unknown && was == Unknown && (reason == ReasonNotSynced || reason == ReasonNotProbed):
		logger.V(3).Info("An informer's cache cannot be measured yet", append(values, "reason", reason)...)
	default:
		logger.Info("An informer's cache is not known to be complete", append(values, "reason", reason, "detail", detail,
			"lagWatch", lag.Watch, "lagQueue", lag.Queue)...)
	}
}

func (c *probed) current() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// remember keeps a sample for the history.
func (c *probed) remember() {
	s := c.snapshot()
	sample := Sample{State: s.State, Age: -1}
	if !s.Proven.IsZero() {
		sample.Age = s.Age
	}
	c.mu.Lock()
	c.history = append(c.history, sample)
	if len(c.history) > historyLength {
		c.history = c.history[1:]
	}
	c.mu.Unlock()
}

// callForHelp says that the cache is stalled, if it has been for a while.
func (c *probed) callForHelp() {
	c.mu.Lock()
	stalled, reason := c.state == Stalled && time.Since(c.since) >= stalledFor, c.reason
	c.mu.Unlock()
	if stalled && c.m.opts.Stalled != nil {
		c.m.opts.Stalled(c.gvr, reason)
	}
}

func (c *probed) snapshot() Cache {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	out := Cache{Resource: c.gvr, Received: c.informer.LastSyncResourceVersion()}
	if proven {
		out.Proven, out.Age = proof.At, time.Since(proof.At)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.State, out.Reason, out.Detail, out.Since = c.state, c.reason, c.detail, c.since
	out.Stored, out.Fenced, out.Probed = c.stored, c.fences[0].ResourceVersion, c.began
	out.Lag = c.lag(out.Received)
	out.History = append([]Sample(nil), c.history...)
	return out
}
