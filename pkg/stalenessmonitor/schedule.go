// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	// Rate is how many requests a second the monitor sends on average, for all caches together, and Burst how many
	// it may save for when many caches need probes at once. Together they stay within 2 a second over
	// any 10 min. Rate may rise to MaxRate if Bound needs that, as with many large and quiet collections.
	Rate    = 1.8
	MaxRate = 1.95
	Burst   = 85
	// Bound is the age that the cache of a protected controller reaches at most, if the server answers at once.
	Bound = 15 * time.Second

	// How long after its last proof the monitor probes a cache again, so that its age stays within Bound: one that a
	// list or a fence proves at once; a busy one, which has up to passWait and moveWait, and may need a list
	// after that; one that moves and may need a watch; and one that stands still and needs a watch.
	atOnceEvery = 13 * time.Second
	busyEvery   = 11500 * time.Millisecond
	movingEvery = 10 * time.Second
	stillEvery  = 11500 * time.Millisecond

	// smallList is the largest number of objects of which a list of metadata is cheaper than a fence and a watch.
	smallList = 100
	// liveWeight is how much more often a cache with objects is probed than an empty one, if no protected controller
	// reads either.
	liveWeight = 4
	// spare is the part of Rate that is saved for caches that need a probe sooner, minShare the least part for caches that
	// no protected controller reads.
	spare, minShare = 0.1, 0.1

	// scheduleEvery is how often turns are given out to protected caches, sampleEvery to all, at most turnsAtOnce.
	scheduleEvery = 250 * time.Millisecond
	turnsAtOnce   = 40
	// quickFirst is how many caches that no protected controller reads get their first probe at once, and
	// firstWithin the time over which those first turns are spread.
	quickFirst  = 60
	firstWithin = 4 * time.Second
	// silentAfter is how long a busy cache may stand still before it is probed.
	silentAfter = 3 * time.Second
	// outageAfter is how long the server must have answered no request before no cache counts as fresh or quiet.
	outageAfter = 30 * time.Second
)

// class of a turn. Each leaves at least its floor in the bucket, which below zero is a debt.
type class int

const (
	// planned turns of caches that protected controllers read.
	planned class = iota
	// prompt turns of caches that need a probe sooner: fallen silent, found behind, lost their proof.
	prompt
	// first turns of the other caches, and all their later ones, which leave most of what is saved.
	first
	shared
)

var floors = [...]float64{planned: -55, prompt: -35, first: 20, shared: 50}

// sharedAtLeast is how often there is a shared turn, however empty the bucket is. Down to the floor of first there are up to twice as many as are
// planned: turns of many caches that are found behind at once may have taken what was saved for those that are due.
const sharedAtLeast = 10 * time.Second

// pace is the process's token bucket of requests.
type pace struct {
	mu           sync.Mutex
	rate, tokens float64
	at           time.Time
	// sharedAt is when the last shared turn was given out, sharedEvery how long after it the next may come while less is saved than
	// the floor of shared.
	sharedAt    time.Time
	sharedEvery time.Duration
}

func newPace(now time.Time) *pace {
	return &pace{rate: Rate, tokens: Burst, at: now, sharedAt: now, sharedEvery: sharedAtLeast}
}

// admits takes the token of a turn's first request, if there is one for its class.
func (p *pace) admits(now time.Time, of class) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens = min(Burst, p.tokens+p.rate*now.Sub(p.at).Seconds())
	p.at = now
	floor := floors[of]
	if of == shared {
		switch waited := now.Sub(p.sharedAt); {
		case waited >= sharedAtLeast:
			floor = floors[planned]
		case waited >= p.sharedEvery:
			floor = floors[first]
		}
	}
	if p.tokens-1 < floor {
		return false
	}
	p.tokens--
	if of == shared {
		p.sharedAt = now
	}
	return true
}

func (p *pace) set(rate float64, sharedEvery time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate, p.sharedEvery = rate, sharedEvery
}

// spend takes the token of a turn's second request, whether there is one or not.
func (p *pace) spend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens--
}

// turn is when a cache is due for a probe.
type turn struct {
	c   *probed
	of  class
	due time.Time
}

// schedule begins the probes that are due, for as long as the pace admits them: of all caches, or of the protected.
func (m *Monitor) schedule(ctx context.Context, wg *sync.WaitGroup, all bool) {
	now := time.Now()
	var due []turn
	for _, c := range m.all() {
		if !all && !c.isProtected() {
			continue
		}
		if t, ok := c.turn(now); ok && !t.due.After(now) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b turn) int {
		if a.of != b.of {
			return int(a.of - b.of)
		}
		return a.due.Compare(b.due)
	})
	for _, t := range due[:min(len(due), turnsAtOnce)] {
		if m.pace.admits(now, t.of) {
			t.c.start(ctx, wg)
		}
	}
}

// plan divides Rate among the caches. Those that protected controllers read get what Bound needs; if that is more
// than MaxRate, all of them get less. The rest is for the others, by their weights.
func (m *Monitor) plan() {
	var demand, weights, turns float64
	for _, c := range m.all() {
		every, cost, weight := c.needs()
		if c.isProtected() {
			demand += cost / every.Seconds()
		} else {
			weights += weight * cost
			turns += weight
		}
	}
	stretch := max(1, demand/(MaxRate-minShare))
	demand /= stretch
	left := max(Rate-spare-demand, minShare)
	share := time.Duration(weights / left * float64(time.Second))
	m.pace.set(max(Rate, demand+minShare), time.Duration(float64(share)/max(2*turns, 1)))
	for _, c := range m.all() {
		c.allot(stretch, share)
	}
}

// need is how a cache is probed at present.
type need int

const (
	// byFence: a fence, which the cache will pass, or which shows that the collection is empty.
	byFence need = iota
	// byList: a list that the cache will equal.
	byList
	// byWatch: a fence that it will not pass, and a watch.
	byWatch
)

// way must be called with mu held.
func (c *probed) way(now time.Time) (way need, every time.Duration) {
	busy := c.busy() && now.Sub(c.moved) < silentAfter
	moves := busy || now.Sub(c.moved) < stillEvery
	switch {
	case c.objects == 0:
		return byFence, atOnceEvery
	case busy && c.objects <= smallList:
		return byFence, busyEvery
	case busy:
		return byFence, movingEvery
	case c.objects <= smallList && c.undecided == 0:
		return byList, atOnceEvery
	case moves:
		return byWatch, movingEvery
	}
	return byWatch, stillEvery
}

// needs are how often to probe the cache, with how many requests, and with which weight.
func (c *probed) needs() (every time.Duration, cost, weight float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	way, every := c.way(time.Now())
	cost, weight = 1, 1
	if way == byWatch {
		cost = 2
	}
	if c.objects > 0 {
		weight = liveWeight
	}
	return every, cost, weight
}

// allot notes the cache's part of the plan.
func (c *probed) allot(stretch float64, share time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stretch, c.share = stretch, share
	if c.objects > 0 {
		c.share = share / liveWeight
	}
}

// every is how often the cache is probed at present. mu must be held.
func (c *probed) every(now time.Time) time.Duration {
	_, every := c.way(now)
	if c.protected {
		return time.Duration(float64(every) * c.stretch)
	}
	return max(every, c.share)
}

// knownFor is for how long after a proof a cache counts as fresh or quiet if the server stops answering: time for a
// probe that times out, and another, and, for a cache that shares the rest, until enough is saved again. mu
// must be held.
func (c *probed) knownFor(now time.Time) time.Duration {
	if c.protected {
		return c.every(now) + 30*time.Second
	}
	return 2*c.every(now) + 2*time.Minute
}

// busy is true if the cache moves every second or two, with at most one pause. mu must be held.
func (c *probed) busy() bool {
	long := 0
	for _, gap := range c.gaps {
		if gap == 0 || gap > busyGap {
			long++
		}
	}
	return long <= 1
}

// turn is when the cache is due for the next probe, and its class, or false if it is not due.
func (c *probed) turn(now time.Time) (turn, bool) {
	proof, proven := c.m.opts.Prover.Known(c.gvr)
	recovered, outage := c.m.recovered(), c.m.outage(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing || c.stored == "" {
		return turn{}, false
	}
	t := turn{c: c, of: shared}
	if c.protected {
		t.of = planned
	}
	if c.began.IsZero() {
		if c.firstDue.IsZero() {
			c.firstDue = now.Add(c.firstAfter())
		}
		if t.due = c.firstDue; !c.protected {
			t.of = first
		}
		return t, true
	}
	soonest := c.began.Add(time.Duration(c.requests) * Period)
	every := c.every(now)
	switch {
	case c.failures > 0 || c.undecided > 0:
		t.due = c.retry
		if c.unreached && c.began.Before(recovered) {
			t.of, t.due = prompt, recovered
		}
	case c.behind(proof, proven, now):
		// Late events show when they arrive. Until then fences show how old the cache is.
		flows := now.Sub(c.moved) < Period
		switch {
		case c.protected && (flows || proven && now.Sub(proof.At) < 2*Bound):
			return turn{c, prompt, c.began.Add(Period)}, true
		case c.protected:
			return turn{c, prompt, c.began.Add(2 * Period)}, true // That it gets what it lacks shows without a request.
		case flows:
			t.of, t.due = prompt, c.began.Add(3*Period)
		default:
			t.due = c.began.Add(every)
		}
	case !outage && !(proven && c.state.healthy()):
		t.of, t.due = prompt, soonest
	case !proven:
		t.due = c.began.Add(every)
	default:
		t.due = proof.At.Add(every)
		silent := c.moved.Add(silentAfter)
		if c.busy() && proof.At.Before(silent) {
			if proof.At.After(c.moved) {
				silent = proof.At.Add(silentAfter) // A missing change came after that.
			}
			// A shared turn that is due may have to wait for long.
			if silent.Before(t.due) || t.of == shared && !silent.After(now) {
				t.of, t.due = prompt, silent
			}
		}
	}
	if t.due.Before(soonest) {
		t.due = soonest
	}
	return t, true
}

// firstAfter is how long until the cache's first probe. mu must be held.
func (c *probed) firstAfter() time.Duration {
	if c.protected || c.quick {
		return phase(c.gvr, firstWithin)
	}
	return phase(c.gvr, max(firstWithin, c.share))
}

// start probes the cache.
func (c *probed) start(ctx context.Context, wg *sync.WaitGroup) {
	c.mu.Lock()
	c.probing = true
	c.mu.Unlock()
	c.probes.Add(1)
	wg.Go(func() {
		defer c.probes.Done()
		c.probe(c.ctx)
		c.mu.Lock()
		c.probing = false
		c.mu.Unlock()
	})
}

// contact is what the monitor's requests have shown about the connection to the server.
type contact struct {
	mu sync.Mutex
	// answered is when the server last answered a request, unanswered when the first request after that was sent.
	answered, unanswered time.Time
	// recovered is when the last outage ended.
	recovered time.Time
}

func (m *Monitor) sends() {
	m.contact.mu.Lock()
	defer m.contact.mu.Unlock()
	if m.contact.unanswered.IsZero() {
		m.contact.unanswered = time.Now()
	}
}

func (m *Monitor) answers() {
	now := time.Now()
	m.contact.mu.Lock()
	defer m.contact.mu.Unlock()
	if m.contact.out(now) {
		m.contact.recovered = now
	}
	m.contact.answered, m.contact.unanswered = now, time.Time{}
}

// out must be called with mu held.
func (c *contact) out(now time.Time) bool {
	return !c.unanswered.IsZero() && now.Sub(c.unanswered) >= outageAfter/2 && now.Sub(c.answered) >= outageAfter
}

// outage is true if the server has answered no request for outageAfter, though requests were sent.
func (m *Monitor) outage(now time.Time) bool {
	m.contact.mu.Lock()
	defer m.contact.mu.Unlock()
	return m.contact.out(now)
}

func (m *Monitor) recovered() time.Time {
	m.contact.mu.Lock()
	defer m.contact.mu.Unlock()
	return m.contact.recovered
}

// unreached is true for a failure that brought no answer.
func unreached(reason freshness.Reason) bool {
	return reason == freshness.ReasonNoServer || reason == freshness.ReasonTimeout
}
