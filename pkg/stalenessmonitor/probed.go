// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"slices"
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
	// lostFor is how long a cache whose proof became void keeps its state: time for a probe.
	lostFor = Period
	// keptGaps is how many times between moves show whether a resource is busy, and
	// busyGap how long they are at most if it is, except one.
	keptGaps = 8
	busyGap  = 2500 * time.Millisecond
	// recount is the number of probes after which the objects of a large cache are counted again.
	recount = 12
)

// probed is one cache. The monitor's goroutine samples it and begins its probes, one at a time.
type probed struct {
	m        *Monitor
	gvr      schema.GroupVersionResource
	informer Informer
	// ctx of its probes ends with stop.
	ctx    context.Context
	stop   context.CancelFunc
	probes sync.WaitGroup
	// quick: its first probe comes at once, whatever its part of the plan.
	quick bool

	mu sync.Mutex
	// protected controllers read the cache.
	protected bool
	// stretch and share are its part of the plan.
	stretch float64
	share   time.Duration
	// objects is their number when they were last counted; uncounted is how many more probes use it.
	objects, uncounted int
	// probing is true while a probe is under way; firstDue is when the first probe is due, retry when the next is
	// after one that found nothing.
	probing         bool
	firstDue, retry time.Time
	// requests of the last probe.
	requests int
	// unreached: the last failure brought no answer.
	unreached bool

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
	// flows: a watch has brought what is missing. flowsAsked is when that was last asked.
	flows      bool
	flowsAsked time.Time
	// lostReported is when Options.Lost was last called.
	lostReported time.Time
	// late is when the cache last got an event late, lost since when its last proof is void.
	late, lost time.Time
	// delay is by how much changes have come late since one last came in time.
	delay time.Duration
	// failures counts fences in a row without an answer, undecided lists and watches that showed nothing.
	failures, undecided       int
	failure, failureErr       string
	undecidedFor, undecidedBy string
	backlog                   backlog
	// history is only ever appended to: snapshots share it.
	history []Sample
}

type answeredFence struct {
	freshness.Fence
	answered time.Time
}

// setProtected notes whether protected controllers read the cache. It returns true if none do and the cache was never probed.
func (c *probed) setProtected(protected bool) (waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.protected = protected
	return !protected && c.began.IsZero()
}

func (c *probed) isProtected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.protected
}

func (c *probed) begin() {
	c.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.requests = time.Now(), 1
}

// count counts the objects, rarely if there are many.
func (c *probed) count() {
	c.mu.Lock()
	c.uncounted--
	known := c.uncounted > 0
	c.mu.Unlock()
	if known {
		return
	}
	n := len(c.informer.GetStore().ListKeys())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.uncounted = n, 0
	if n > 2*smallList {
		c.uncounted = recount
	}
}

func (c *probed) fenced(ctx context.Context, f freshness.Fence) {
	c.mu.Lock()
	newer := f.TakenAt.After(c.fences[0].TakenAt)
	if f.Epoch != c.fences[0].Epoch && (newer || f.Epoch > c.fences[0].Epoch) {
		// All that is known is of a history that is gone.
		c.missing, c.missed, c.late, c.delay = "", 0, time.Time{}, 0
		c.fences, newer = [2]answeredFence{}, true
	}
	if !newer {
		c.mu.Unlock()
		return
	}
	back := c.failure == reasonNotFound
	c.fences[1], c.fences[0] = c.fences[0], answeredFence{f, time.Now()}
	c.failures, c.failure, c.failureErr = 0, "", ""
	state := c.state
	c.mu.Unlock()
	if back {
		c.m.opts.Metrics.Watched(c.gvr)
		c.m.opts.Metrics.Entered(c.gvr, string(state))
		klog.FromContext(ctx).Info("The server serves a resource again", "resource", c.gvr)
	}
}

// found notes a proof that the cache is stale.
func (c *probed) found(ctx context.Context, proof freshness.Proof) {
	c.mu.Lock()
	c.flows = proof.ByWatch() || c.flows && c.lacks()
	c.missing, c.missed, c.undecided = proof.ResourceVersion, proof.Events, 0
	c.failures, c.failure, c.failureErr = 0, "", ""
	told := !c.lostReported.IsZero() && time.Since(c.lostReported) < lostAgain
	if proof.Lost && !told {
		c.lostReported = time.Now()
	}
	c.mu.Unlock()
	if proof.Lost && !told && c.m.opts.Lost != nil {
		c.m.opts.Lost(c.gvr)
	}
	c.sample(ctx)
}

// sample reads the store's RV. An event that the store gets more than a second after a fence had
// shown a later RV is late, which costs no request to know.
func (c *probed) sample(ctx context.Context) {
	rv := c.informer.GetStore().LastStoreSyncResourceVersion()
	now := time.Now()
	proof, proven := c.m.opts.Prover.Known(c.gvr)
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
		switch {
		case c.inTime(rv):
			c.delay = 0
		case proven:
			c.delay = max(c.delay, now.Sub(proof.At))
		}
		if !c.moved.IsZero() {
			c.gaps[c.nextGap] = now.Sub(c.moved)
			c.nextGap = (c.nextGap + 1) % keptGaps
		}
		if c.stored != "" {
			c.moved = now
		}
		c.stored = rv
	}
	c.sampled = now
	c.mu.Unlock()
	c.sampleHandlers(ctx, rv, now)
	c.evaluateBy(ctx, proof, proven)
}

// passedByFence reports whether a fence that was answered more than lateBy before the last sample had passed an RV
// that the store did not have at that sample. mu must be held.
func (c *probed) passedByFence(rv string) bool {
	for _, f := range c.fences {
		if c.stored != "" && freshness.Less(c.stored, rv) && freshness.Less(rv, f.ResourceVersion) && !c.sampled.Before(f.answered.Add(lateBy)) {
			return true
		}
	}
	return false
}

// inTime reports whether no fence that was answered more than lateBy before the last sample shows this RV, or a later one. mu must be held.
func (c *probed) inTime(rv string) bool {
	for _, f := range c.fences {
		if f.ResourceVersion != "" && freshness.Passed(f.ResourceVersion, rv) && !c.sampled.Before(f.answered.Add(lateBy)) {
			return false
		}
	}
	return true
}

// holds reports whether an object has this RV: then an event took the store there. A bookmark behind a fence is not late:
// an apiserver to which the client has just moved begins there. holds costs time in
// proportion to the objects, and misses late deletions, which the next watch shows.
func (c *probed) holds(rv string) bool {
	for _, object := range c.informer.GetStore().List() {
		if accessor, err := meta.Accessor(object); err == nil && accessor.GetResourceVersion() == rv {
			return true
		}
	}
	return false
}

// moves is true if the store has moved recently, or since it was at stored: it may catch up soon.
func (c *probed) moves(stored string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lately := Period
	if c.busy() {
		lately = silentAfter
	}
	return time.Since(c.moved) < lately || freshness.Less(stored, c.informer.GetStore().LastStoreSyncResourceVersion())
}

// knownBehind is true if the cache is known, without a request, to lack something.
func (c *probed) knownBehind() bool {
	proof, ok := c.m.opts.Prover.Known(c.gvr)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind(proof, ok, time.Now())
}

// lacksSince is true if the cache is known to lack something that came after a fence. mu must be held.
func (c *probed) lacksSince(f answeredFence) bool {
	return c.lacks() && freshness.Less(f.ResourceVersion, c.missing)
}

// lacks is true if the cache has not passed what a proof has shown it to lack. mu must be held.
func (c *probed) lacks() bool { return c.missing != "" && !freshness.Passed(c.stored, c.missing) }

func (c *probed) behind(proof freshness.Proof, proven bool, now time.Time) bool {
	if c.lacks() {
		return true
	}
	return !c.late.IsZero() && now.Sub(c.late) < Period && (!proven || proof.At.Before(c.late))
}

// lag must be called with mu held.
func (c *probed) lag(stored, received string) Lag {
	if c.state != Lagging && c.state != Stalled {
		return Lag{}
	}
	return Lag{Watch: freshness.Distance(received, c.fences[0].ResourceVersion), Queue: freshness.Distance(stored, received)}
}

func (c *probed) logChange(ctx context.Context, was, state State, reason, detail string, lasted time.Duration, proof freshness.Proof, proven bool, lag Lag) {
	values := []any{"resource", c.gvr, "state", state, "was", was, "for", lasted.Round(time.Millisecond)}
	if proven {
		values = append(values, "provenAge", time.Since(proof.At).Round(time.Millisecond))
	}
	logger := klog.FromContext(ctx)
	switch {
	case state.healthy() && (was.healthy() || was == Unknown):
		logger.V(3).Info("An informer's cache is proven complete", values...)
	case state.healthy():
		logger.Info("An informer's cache is proven complete again", values...)
	case state == Unknown && was == Unknown && (reason == ReasonNotSynced || reason == ReasonNotProbed):
		logger.V(3).Info("An informer's cache cannot be measured yet", append(values, "reason", reason)...)
	default:
		logger.Info("An informer's cache is not proven complete", append(values, "reason", reason, "detail", detail,
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
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	sample := Sample{Age: -1}
	if proven {
		sample.Age = time.Since(proof.At)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sample.State = c.state
	c.history = append(c.history, sample)
	c.history = c.history[max(0, len(c.history)-historyLength):]
}

// callForHelp calls Options.Stalled if the cache has been stalled for stalledFor, or, if changes come late, for as long as they do: what is
// missing may be on its way, and behind a new watch it would take as long again.
func (c *probed) callForHelp() {
	c.mu.Lock()
	stalled, reason := c.state == Stalled && time.Since(c.since) >= max(stalledFor, min(c.delay, longestDelay)), c.reason
	relist := c.flows && c.lacks() || c.objects <= smallList
	c.mu.Unlock()
	if stalled && c.m.opts.Stalled != nil {
		c.m.opts.Stalled(c.gvr, reason, relist)
	}
}

func (c *probed) snapshot() Cache {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	out := Cache{Resource: c.gvr}
	if proven {
		out.Proven, out.Age = proof.At, time.Since(proof.At)
	}
	// Read after the proof: what an older store lacks may be older than Age.
	out.Stored = c.informer.GetStore().LastStoreSyncResourceVersion()
	out.Received = c.informer.LastSyncResourceVersion()
	deliveries := c.m.opts.Handlers(c.informer)
	c.mu.Lock()
	defer c.mu.Unlock()
	out.State, out.Reason, out.Detail, out.Since = c.state, c.reason, c.detail, c.since
	out.Fenced, out.Probed = c.fences[0].ResourceVersion, c.began
	out.Protected, out.Every = c.protected, c.every(time.Now())
	out.Lag = c.lag(out.Stored, out.Received)
	out.Handlers = c.backlog.handlers(deliveries, time.Now())
	out.History = slices.Clip(c.history)
	return out
}
