// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// counts is a Metrics.
type counts struct {
	mu      sync.Mutex
	watched map[schema.GroupVersionResource]bool
	probed  map[string]int
	entered map[State]int
	stalled int
	relists int // of the calls for help
	// registered counts what is known to the prover.
	registered map[schema.GroupVersionResource]int
}

func newCounts() *counts {
	return &counts{watched: map[schema.GroupVersionResource]bool{}, probed: map[string]int{}, entered: map[State]int{}, registered: map[schema.GroupVersionResource]int{}}
}

func (c *counts) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *counts) count(s State) (n int) {
	c.note(func() { n = c.entered[s] })
	return n
}

func (c *counts) watches(r schema.GroupVersionResource) (yes bool) {
	c.note(func() { yes = c.watched[r] })
	return yes
}

func (c *counts) Watched(r schema.GroupVersionResource)   { c.note(func() { c.watched[r] = true }) }
func (c *counts) Unwatched(r schema.GroupVersionResource) { c.note(func() { delete(c.watched, r) }) }
func (c *counts) Probed(_ schema.GroupVersionResource, outcome string) {
	c.note(func() { c.probed[outcome]++ })
}
func (c *counts) Entered(_ schema.GroupVersionResource, s string) {
	c.note(func() { c.entered[State(s)]++ })
}

// run runs a monitor of one cache for a test in a bubble.
func run(t *testing.T, w *world, test func(m *Monitor, c *counts, look func() Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCounts()
		var gone atomic.Bool
		m := New(Options{
			Prover: w, Metrics: c,
			Register: func(gvr schema.GroupVersionResource, _ Informer) { c.note(func() { c.registered[gvr]++ }) },
			Forget:   func(gvr schema.GroupVersionResource, _ Informer) { c.note(func() { c.registered[gvr]-- }) },
			Informers: func() map[schema.GroupVersionResource]Informer {
				if gone.Load() {
					return nil
				}
				return map[schema.GroupVersionResource]Informer{pods: w}
			},
			Protected: func(schema.GroupVersionResource) bool { return true },
			Stalled: func(_ schema.GroupVersionResource, _ string, relist bool) {
				c.note(func() {
					c.stalled++
					if relist {
						c.relists++
					}
				})
			},
		})
		w.m = m
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		w.end, w.begin = func() { gone.Store(true) }, func() { gone.Store(false) }
		test(m, c, func() Cache {
			synctest.Wait()
			all := m.Caches()
			require.Len(t, all, 1)
			return all[0]
		})
		cancel()
		<-done
	})
}

// busy makes a change of the resource every half second, for a while.
func busy(w *world, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		w.change(1)
	}
}

func TestFreshWhileBusy(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		busy(w, time.Minute)
		got := look()
		require.Equal(t, Fresh, got.State)
		require.Less(t, got.Age, busyEvery+2*time.Second)
		require.Equal(t, Lag{}, got.Lag)
		n := w.requests()
		require.Zero(t, n.watched+n.listed, "a busy resource needs fences alone")
		require.InDelta(t, 7, n.fenced, 1)
		require.NotEmpty(t, got.History)
	})
}

func TestQuietIsNotStale(t *testing.T) {
	w := newWorld()
	w.server++ // Or a fence that is taken at once finds the cache fresh.
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		for range 120 {
			w.set(func(w *world) { w.server += 10 }) // Other resources change.
			time.Sleep(500 * time.Millisecond)
			if got := look(); got.State != Unknown {
				require.Equal(t, Quiet, got.State)
				require.Less(t, got.Age, Bound)
			}
		}
		require.LessOrEqual(t, w.requests().all(), 12, "two requests in 11.5 s")
		require.Zero(t, c.count(Stalled)+c.count(Lagging))
	})
}

// An apiserver that has long had nothing to say of a resource begins behind the fences that another has answered.
func TestAnOldBookmarkIsNoAlarm(t *testing.T) {
	w := newWorld()
	w.server++ // As above.
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		for range 60 {
			w.set(func(w *world) { w.server += 10; w.stored++; w.received++ })
			time.Sleep(1100 * time.Millisecond)
			if got := look(); got.State != Unknown {
				require.Equal(t, Quiet, got.State)
			}
		}
		require.Zero(t, c.count(Stalled)+c.count(Lagging))
	})
}

// A watch that was held for a moment does not make a busy cache a quiet one, which is asked about half as often.
func TestLateIsNotQuiet(t *testing.T) {
	const every, held, cycle = 300 * time.Millisecond, 9, 60
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 20*time.Second)
		w.set(func(w *world) { w.moves = false })
		for i := range 8 * cycle {
			at := w.change(1)
			if i%cycle >= held {
				w.set(func(w *world) { w.stored, w.received = at, at })
			}
			time.Sleep(every)
			require.LessOrEqual(t, look().Age, movingEvery+2*time.Second+held*every, "after %d changes", i)
		}
	})
}

// However far its events or bookmarks are apart, a resource costs one request in a Period, and its age keeps its bound.
func TestCostWhateverTheGaps(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	event := func(w *world) { w.change(1) }
	bookmark := func(w *world) { w.set(func(w *world) { w.stored, w.received = w.server, w.server }) }
	for _, gap := range []time.Duration{500, 1500, 2000, 2700, 3000, 3300, 3700, 4000, 4500, 5000, 5300, 7000, 11000, 13000, 60000} {
		gap *= time.Millisecond
		for _, size := range []int{20, large} {
			t.Run(fmt.Sprintf("%v of %d", gap, size), func(t *testing.T) { costs(t, size, gap, event) })
		}
		for _, size := range []int{0, 20, large} {
			t.Run(fmt.Sprintf("bookmark/%v of %d", gap, size), func(t *testing.T) { costs(t, size, gap, bookmark) })
		}
	}
}

func costs(t *testing.T, size int, gap time.Duration, move func(*world)) {
	w := newWorld()
	w.size, w.answerWatchAfter = size, slowestBookmark
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		const lasts = 5 * time.Minute
		var oldest time.Duration
		began, moved := time.Now(), time.Now()
		for ; time.Since(began) < lasts; time.Sleep(100 * time.Millisecond) {
			oldest = max(oldest, look().Age)
			w.set(func(w *world) { w.server++ }) // Other resources change.
			if time.Since(moved) >= gap {
				moved = time.Now()
				move(w)
			}
		}
		n := w.requests()
		most := int(lasts/Period) + 1
		if size <= smallList && (size == 0 || gap > moveWait+passWait) {
			most = int(lasts/(busyEvery-time.Second/2)) + 2
		}
		require.LessOrEqual(t, n.all(), most, "%+v", n)
		require.LessOrEqual(t, oldest, Bound)
		require.Zero(t, c.count(Stalled)+c.count(Lagging))
		require.Equal(t, 1, c.count(Unknown), "before its first probe")
	})
}

// What a breaker's proof needs comes in place of what the monitor would have asked, not on top.
func TestFencesOfOthersStandIn(t *testing.T) {
	for _, test := range []struct {
		every, changes time.Duration
		own            int // of the monitor in 2 min
	}{
		{every: 2 * time.Second, changes: 500 * time.Millisecond},
		{every: 7 * time.Second, changes: 500 * time.Millisecond},
		{every: 20 * time.Second, changes: 500 * time.Millisecond, own: 12},
		{every: 2 * time.Second, changes: time.Hour, own: 12},
	} {
		t.Run(test.every.String()+" "+test.changes.String(), func(t *testing.T) {
			w := newWorld()
			run(t, w, func(m *Monitor, _ *counts, look func() Cache) {
				const lasts = 2 * time.Minute
				began, changed, others := time.Now(), time.Now(), 0
				for asked := time.Now(); time.Since(began) < lasts; time.Sleep(100 * time.Millisecond) {
					w.set(func(w *world) { w.server++ })
					if time.Since(changed) >= test.changes {
						changed = time.Now()
						w.change(1)
					}
					if time.Since(asked) >= test.every {
						asked, others = time.Now(), others+1
						f, err := w.Fence(t.Context(), pods)
						require.NoError(t, err)
						m.Fenced(pods, f)
					}
					if time.Since(began) > 20*time.Second {
						require.LessOrEqual(t, look().Age, Bound)
					}
				}
				n := w.requests()
				require.LessOrEqual(t, n.fenced, others+test.own+3, "%d of others", others)
				require.LessOrEqual(t, n.watched, test.own+1)
			})
		})
	}
}

func TestHeldWatchIsNoticed(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		busy(w, 20*time.Second)
		require.Equal(t, Fresh, look().State)
		w.set(func(w *world) { w.moves = false })
		held := time.Now()
		go busy(w, 40*time.Second)
		for look().State != Stalled {
			require.Less(t, time.Since(held), 10*time.Second)
			time.Sleep(100 * time.Millisecond)
		}
		got := look()
		require.Equal(t, ReasonWatch, got.Reason)
		require.NotZero(t, got.Lag.Watch)
		require.Zero(t, got.Lag.Queue)
		time.Sleep(30 * time.Second)
		got = look()
		require.Equal(t, Stalled, got.State)
		require.GreaterOrEqual(t, got.Age, time.Since(held), "the age is never below the truth")
		require.LessOrEqual(t, got.Age, time.Since(held)+movingEvery+2*time.Second)
		require.Equal(t, 1, w.requests().watched, "one watch finds it, none are needed while it lasts")
		c.note(func() {
			require.InDelta(t, time.Since(got.Since)/time.Second, c.stalled, 4, "help is called for every second")
		})

		time.Sleep(10 * time.Second)
		w.set(func(w *world) { w.moves = true })
		busy(w, 10*time.Second)
		require.Equal(t, Fresh, look().State)
		require.Equal(t, 1, c.count(Stalled), "each change is counted once")
	})
}

// An informer may relist if a watch has brought what its cache lacks, or if that costs little. A list shows what is missing also where the
// server has nothing to bring to anybody, and would be made to list for nothing.
func TestAnInformerRelistsIfEventsFlow(t *testing.T) {
	for name, test := range map[string]struct {
		size       int
		joined     bool // at first, until what is missing is known
		mute       bool // from then on
		relists    bool
		maxWatches int
	}{
		"by a watch":                           {size: large, relists: true, maxWatches: 1},
		"by a list, and watches bring it":      {size: large, joined: true, relists: true, maxWatches: 2},
		"by a list, and watches bring nothing": {size: large, joined: true, mute: true, maxWatches: 1 + 3},
		"by a list, of a few objects":          {size: 10, mute: true, relists: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.size = test.size
			run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
				busy(w, 20*time.Second)
				w.set(func(w *world) { w.moves, w.joined = false, test.joined })
				held := time.Now()
				ended := make(chan struct{})
				go func() { busy(w, 80*time.Second); close(ended) }()
				for look().State != Stalled {
					time.Sleep(100 * time.Millisecond)
				}
				w.set(func(w *world) { w.joined, w.mute = false, test.mute })
				time.Sleep(65 * time.Second)
				got, lasted := look(), time.Since(held)
				<-ended
				require.Equal(t, Stalled, got.State)
				require.Equal(t, ReasonWatch, got.Reason)
				require.Less(t, got.Age, lasted+movingEvery+2*time.Second)
				require.LessOrEqual(t, w.requests().watched, test.maxWatches)
				c.note(func() {
					require.Greater(t, c.stalled, 50)
					if test.relists {
						require.Greater(t, c.relists, 50)
					} else {
						require.Zero(t, c.relists)
					}
				})
			})
		})
	}
}

// A watch that is held just when a fence is taken has brought all up to it.
func TestHeldAtTheFence(t *testing.T) {
	for _, after := range []time.Duration{-10 * time.Millisecond, 0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			w := newWorld()
			run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
				others := time.NewTicker(50 * time.Millisecond) // Other resources change.
				defer others.Stop()
				ended := make(chan struct{})
				defer close(ended)
				go func() {
					for {
						select {
						case <-others.C:
							w.set(func(w *world) { w.server++ })
						case <-ended:
							return
						}
					}
				}()
				busy(w, 20*time.Second)
				fenced := w.requests().fenced
				go busy(w, 2*busyEvery)
				for w.requests().fenced == fenced {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(movingEvery + after) // The next one is taken now.
				w.set(func(w *world) { w.moves = false })
				held := time.Now()
				go busy(w, 20*time.Second)
				for got := look(); got.State != Stalled && got.State != Lagging; got = look() {
					require.Less(t, time.Since(held), 10*time.Second)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(Period)
				require.Equal(t, Stalled, look().State)
				require.GreaterOrEqual(t, look().Age+time.Second/2, time.Since(held))
				require.LessOrEqual(t, look().Age, time.Since(held)+movingEvery+2*time.Second)
				time.Sleep(20 * time.Second) // The changes end.
			})
		})
	}
}

func TestQueueAndWatchAreDistinguished(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 10*time.Second)
		w.set(func(w *world) { w.moves = false })
		for range 40 {
			w.change(1)
			w.set(func(w *world) { w.received = w.changed })
			time.Sleep(500 * time.Millisecond)
		}
		got := look()
		require.Equal(t, Stalled, got.State)
		require.Equal(t, ReasonQueue, got.Reason)
		require.NotZero(t, got.Lag.Queue)
	})
}

func TestDelayedWatchLags(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 10*time.Second)
		w.set(func(w *world) { w.moves = false })
		began := time.Now()
		const delay = 12
		for i := range 120 {
			at := w.change(1)
			time.AfterFunc(delay*time.Second, func() { w.set(func(w *world) { w.stored, w.received = at, at }) })
			time.Sleep(500 * time.Millisecond)
			if i > 2*delay+20 {
				got := look()
				require.Equal(t, Lagging, got.State, "after %s", time.Since(began))
				require.GreaterOrEqual(t, got.Age, (delay-1)*time.Second)
				require.LessOrEqual(t, got.Age, delay*time.Second+Period+2*time.Second, "it is asked about more often")
			}
		}
		require.LessOrEqual(t, w.requests().watched, 2, "late events show the lag without a request")
	})
}

// Behind a pipe by which all comes late, what is missing is on its way: help would have a new watch begin, and it come later still. Once a change has come in
// time, help for the next that does not is called at once again.
func TestHelpWaitsForWhatIsOnItsWay(t *testing.T) {
	const delay = 40 * time.Second
	w := newWorld()
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		late := func() {
			at := w.change(1)
			time.AfterFunc(delay, func() { w.set(func(w *world) { w.stored, w.received = at, at }) })
		}
		calls := func() (n int) {
			c.note(func() { n = c.stalled })
			return n
		}
		busy(w, 20*time.Second)
		w.set(func(w *world) { w.moves = false })
		for end := time.Now().Add(2 * delay); time.Now().Before(end); time.Sleep(time.Second) {
			late()
		}
		time.Sleep(3 * delay)
		require.Contains(t, []State{Fresh, Quiet}, look().State, "all has come")
		before := calls()

		late()
		time.Sleep(delay - time.Second)
		require.Equal(t, Stalled, look().State)
		require.Equal(t, before, calls())
		time.Sleep(time.Minute)
		require.Contains(t, []State{Fresh, Quiet}, look().State)
		require.Equal(t, before, calls())

		w.change(1) // It does not come.
		time.Sleep(delay + 20*time.Second)
		require.Greater(t, calls(), before)
		w.set(func(w *world) { w.moves = true })
		busy(w, 20*time.Second)
		require.Equal(t, Fresh, look().State)

		before = calls()
		w.set(func(w *world) { w.moves = false })
		w.change(1)
		time.Sleep(20 * time.Second)
		require.Greater(t, calls(), before, "changes come in time again")
	})
}

func TestServerThatPushesBack(t *testing.T) {
	for reason, most := range map[freshness.Reason]int{
		"Throttled": 8, freshness.ReasonTimeout: 8, freshness.ReasonForbidden: 7, freshness.ReasonNoServer: 18,
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorld()
			run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
				busy(w, 10*time.Second)
				w.set(func(w *world) {
					w.requestCounts, w.failure = requestCounts{}, &freshness.Error{Resource: pods, Reason: reason, Err: errors.New("no")}
				})
				time.Sleep(3 * time.Minute)
				require.LessOrEqual(t, w.requests().all(), most)
				got := look()
				require.Equal(t, Unknown, got.State)
				require.Equal(t, string(reason), got.Reason)
				require.Greater(t, got.Age, 3*time.Minute, "it has only got older")
				w.set(func(w *world) { w.failure = nil })
				busy(w, time.Minute)
				require.Equal(t, Fresh, look().State)
			})
		})
	}
}

// One request that is not answered in time says nothing yet, and is not sent again at once.
func TestOneTimeoutIsNoAlarm(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, c *counts, look func() Cache) {
		busy(w, 20*time.Second)
		unknown := c.count(Unknown)
		fenced := w.requests().fenced
		w.set(func(w *world) {
			w.answerAfter, w.failure = 10*time.Second, &freshness.Error{Resource: pods, Reason: freshness.ReasonTimeout, Err: errors.New("no answer")}
		})
		for w.requests().fenced == fenced {
			busy(w, time.Second)
		}
		w.set(func(w *world) { w.answerAfter, w.failure = 0, nil })
		for range 8 {
			busy(w, time.Second)
			require.Equal(t, fenced+1, w.requests().fenced)
		}
		busy(w, 20*time.Second)
		require.Equal(t, Fresh, look().State)
		require.Equal(t, unknown, c.count(Unknown))
	})
}

// A proof is not valid without end, whatever the requests do.
func TestUnansweredIsNotCalledFresh(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 20*time.Second)
		w.set(func(w *world) { w.answerAfter = 2 * time.Minute })
		busy(w, 2*time.Second) // What was asked before is answered.
		proof, ok := w.Known(pods)
		require.True(t, ok)
		time.Sleep(time.Until(proof.At.Add(outageAfter - time.Second)))
		require.Equal(t, Fresh, look().State)
		time.Sleep(3 * time.Second)
		got := look()
		require.Equal(t, Unknown, got.State)
		require.Equal(t, string(freshness.ReasonTimeout), got.Reason)
		require.Contains(t, got.Detail, "the server has answered no probe for 30s")
		w.set(func(w *world) { w.answerAfter = 0 })
		busy(w, 3*time.Minute)
		require.Equal(t, Fresh, look().State)
	})
}

func TestRewind(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 10*time.Second)
		w.set(func(w *world) {
			w.server, w.changed, w.fences, w.quietUpTo = 50, 50, nil, 0
			w.failure = &freshness.Error{Resource: pods, Reason: freshness.ReasonRewind, Err: errors.New("rewound")}
			w.epoch, w.rewound = w.epoch+1, true
		})
		time.Sleep(time.Second)
		got := look()
		require.Equal(t, Stalled, got.State)
		require.Equal(t, ReasonRewind, got.Reason)
		require.Zero(t, got.Proven, "there is no bound")
		w.set(func(w *world) { w.stored, w.received, w.failure, w.rewound = 50, 50, nil, false })
		busy(w, time.Minute)
		require.Equal(t, Fresh, look().State)
	})
}

// What was known of a history that is gone says nothing: what the cache gets next is below an old fence, and not late for that.
func TestNothingIsKeptAcrossEpochs(t *testing.T) {
	c := &probed{m: New(Options{}), gvr: pods}
	sent := time.Now()
	c.fenced(t.Context(), freshness.Fence{ResourceVersion: "100", TakenAt: sent})
	c.fenced(t.Context(), freshness.Fence{ResourceVersion: "110", TakenAt: sent.Add(2 * time.Second)})
	c.missing, c.missed, c.late = "105", 1, sent
	// It found the rewind, though another was sent after it.
	found := freshness.Fence{ResourceVersion: "50", TakenAt: sent.Add(time.Second), Epoch: 1}
	c.fenced(t.Context(), found)
	require.Equal(t, found, c.fences[0].Fence)
	require.Zero(t, c.fences[1])
	require.Empty(t, c.missing)
	require.Zero(t, c.missed)
	require.Zero(t, c.late)

	// A fence from before that, which is told late.
	c.missing = "55"
	c.fenced(t.Context(), freshness.Fence{ResourceVersion: "105", TakenAt: sent.Add(time.Millisecond)})
	require.Equal(t, found, c.fences[0].Fence)
	require.Equal(t, "55", c.missing)
}

// relisting is a server and a cache that catches up by a list at the moment that it is asked about.
type relisting struct{ *world }

func (r relisting) Known(gvr schema.GroupVersionResource) (freshness.Proof, bool) {
	r.set(func(w *world) { w.stored, w.received = w.changed, w.changed })
	return r.world.Known(gvr)
}

// A row says how old the store is that it names: what that store lacks is no older than the age.
func TestARowIsOfOneStore(t *testing.T) {
	w := newWorld()
	w.moves = false
	c := &probed{m: New(Options{Prover: w, Metrics: newCounts()}), gvr: pods, informer: w, state: Unknown, reason: ReasonNotProbed}
	w.m = c.m
	lacked := w.change(1)
	c.sample(t.Context())
	require.Equal(t, "100", c.snapshot().Stored)

	fence, err := w.Fence(t.Context(), pods)
	require.NoError(t, err)
	c.m.opts.Prover = relisting{w}
	c.fenced(t.Context(), fence)
	c.state = Stalled
	row := c.snapshot()
	require.Equal(t, fence.TakenAt, row.Proven)
	require.Equal(t, rv(lacked), row.Stored, "the store of which that is proven")
	require.Equal(t, Lag{}, row.Lag, "and which lacks nothing")
	require.Equal(t, Stalled, row.State, "until the next sample")
}

func TestNotSyncedIsNotAsked(t *testing.T) {
	w := newWorld()
	w.stored, w.received, w.moves = 0, 0, false
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		time.Sleep(time.Minute)
		require.Equal(t, ReasonNotSynced, look().Reason)
		require.Zero(t, w.requests().all())
	})
}

func TestNothingIsLeftOfWhatIsGone(t *testing.T) {
	w := newWorld()
	run(t, w, func(m *Monitor, c *counts, look func() Cache) {
		busy(w, 10*time.Second)
		require.True(t, c.watches(pods))
		w.set(func(w *world) {
			w.failure = &freshness.Error{Resource: pods, Reason: freshness.ReasonNotFound, Err: errors.New("gone")}
		})
		time.Sleep(20 * time.Second)
		got := look()
		require.False(t, got.Served())
		require.False(t, c.watches(pods))
		c.note(func() { require.Zero(t, c.probed[string(freshness.ReasonNotFound)]) })
		w.set(func(w *world) { w.failure = nil })
		busy(w, time.Minute)
		require.True(t, c.watches(pods))
		require.Equal(t, Fresh, look().State)
		c.note(func() { require.Equal(t, 1, c.registered[pods]) })

		w.end()
		time.Sleep(2 * Period)
		synctest.Wait()
		require.Empty(t, m.Caches())
		require.False(t, c.watches(pods))
		c.note(func() { require.Zero(t, c.registered[pods]) })
		before := w.requests()
		time.Sleep(time.Minute)
		require.Equal(t, before, w.requests(), "nobody asks about it")

		w.begin()
		busy(w, time.Minute)
		require.True(t, c.watches(pods))
		require.Equal(t, Fresh, look().State)
		c.note(func() { require.Equal(t, 1, c.registered[pods]) })
	})
}

func TestPhasesAreSpread(t *testing.T) {
	quarters := map[time.Duration]int{}
	const n = 400
	for i := range n {
		p := phase(schema.GroupVersionResource{Group: strconv.Itoa(i), Resource: "things"}, Period)
		require.Less(t, p, Period)
		quarters[p/(Period/4)]++
	}
	for q := range time.Duration(4) {
		require.InDelta(t, n/4, quarters[q], n/8)
	}
}
