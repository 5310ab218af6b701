// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// slowestBookmark is when kube-apiserver sends the bookmark of a watch of 3 s at the latest: 2 s before the end, and it
// looks once a second.
const slowestBookmark = 2250 * time.Millisecond

// world is a server, one informer's cache of it, and a prover that knows both.
type world struct {
	mu sync.Mutex
	// server is the RV that a fence returns; changed the RV of the resource's last change.
	server, changed  int
	changes          []int
	stored           int
	received         int
	fences           []freshness.Fence
	quietUpTo        int
	failure          *freshness.Error
	answerAfter      time.Duration // of fences
	answerWatchAfter time.Duration
	fenced, watched  int
	objects          cache.Store
	moves            bool   // the cache follows at once
	end, begin       func() // the informer is gone, or back
}

func newWorld() *world {
	return &world{server: 100, changed: 100, stored: 100, received: 100, moves: true, answerWatchAfter: 1700 * time.Millisecond, objects: cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

type face struct {
	cache.Store
	w *world
}

func (f face) LastStoreSyncResourceVersion() string {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return rv(f.w.stored)
}

// List returns the object of the change that took the store where it is, if it was one.
func (f face) List() []any {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !slices.Contains(f.w.changes, f.w.stored) {
		return nil
	}
	return []any{&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv(f.w.stored)}}}
}

func rv(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (w *world) GetStore() cache.Store { return face{w.objects, w} }

func (w *world) LastSyncResourceVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rv(w.received)
}

// change makes n changes of the resource, and returns the RV of the last.
func (w *world) change(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server += n
	w.changed = w.server
	w.changes = append(w.changes, w.changed)
	if w.moves {
		w.stored, w.received = w.changed, w.changed
	}
	return w.changed
}

// next is the first change after an RV, 0 if none is known.
func (w *world) next(stored int) int {
	for _, at := range w.changes {
		if at > stored {
			return at
		}
	}
	return 0
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// requests returns how many fences and watches there were.
func (w *world) requests() (fenced, watched int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fenced, w.watched
}

func (w *world) Fence(context.Context, schema.GroupVersionResource) (freshness.Fence, error) {
	w.mu.Lock()
	after := w.answerAfter
	w.mu.Unlock()
	time.Sleep(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced++
	if w.failure != nil {
		return freshness.Fence{}, w.failure
	}
	f := freshness.Fence{ResourceVersion: rv(w.server), TakenAt: time.Now()}
	w.fences = append(w.fences, f)
	return f, nil
}

func (w *world) Known(schema.GroupVersionResource) (freshness.Proof, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.fences) - 1; i >= 0; i-- {
		f := w.fences[i]
		if freshness.Passed(rv(w.stored), f.ResourceVersion) || freshness.Passed(rv(w.quietUpTo), f.ResourceVersion) {
			return freshness.Proof{Outcome: freshness.Proven, At: f.TakenAt, ResourceVersion: f.ResourceVersion}, true
		}
	}
	return freshness.Proof{}, false
}

func (w *world) Confirm(_ context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, bool) {
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		if proof, ok := w.Known(gvr); ok && !proof.At.Before(asOf) {
			return proof, true
		}
		if !time.Now().Before(end) {
			return freshness.Proof{}, false
		}
	}
}

func (w *world) ProveByWatch(context.Context, schema.GroupVersionResource, time.Time) (freshness.Proof, error) {
	w.mu.Lock()
	after := w.answerWatchAfter
	w.mu.Unlock()
	time.Sleep(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched++
	fenced, _ := strconv.Atoi(w.fences[len(w.fences)-1].ResourceVersion)
	switch {
	case w.failure != nil:
		return freshness.Proof{Outcome: freshness.Unknown, Reason: w.failure.Reason, Err: w.failure.Err}, nil
	case w.stored < w.changed && w.next(w.stored) > fenced:
		w.quietUpTo = fenced
		return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: rv(w.stored), Ahead: rv(w.next(w.stored))}, nil
	case w.stored < w.changed:
		return freshness.Proof{Outcome: freshness.Stale, ResourceVersion: rv(w.stored + 1), Events: w.changed - w.stored}, nil
	}
	w.quietUpTo = w.server
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: rv(w.stored)}, nil
}

// counts is a Metrics.
type counts struct {
	mu      sync.Mutex
	watched map[schema.GroupVersionResource]bool
	probed  map[string]int
	entered map[State]int
	stalled int
	// registered counts what is known to the prover.
	registered map[schema.GroupVersionResource]int
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
func (c *counts) Probed(_ schema.GroupVersionResource, outcome string, _ time.Duration) {
	c.note(func() { c.probed[outcome]++ })
}
func (c *counts) Entered(_ schema.GroupVersionResource, s State) { c.note(func() { c.entered[s]++ }) }

// run runs a monitor of one cache for a test in a bubble.
func run(t *testing.T, w *world, test func(m *Monitor, c *counts, look func() Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counts{watched: map[schema.GroupVersionResource]bool{}, probed: map[string]int{}, entered: map[State]int{}, registered: map[schema.GroupVersionResource]int{}}
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
			Stalled: func(schema.GroupVersionResource, string) { c.note(func() { c.stalled++ }) },
		})
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
		require.Less(t, got.Age, Period+2*time.Second)
		require.Equal(t, Lag{}, got.Lag)
		fenced, watched := w.requests()
		require.Zero(t, watched, "a busy resource needs no watch")
		require.InDelta(t, 12, fenced, 1, "one request in a period")
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
				require.Less(t, got.Age, 2*Period+5*time.Second)
			}
		}
		fenced, watched := w.requests()
		require.LessOrEqual(t, fenced+watched, 13, "on average one request in a period")
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
			require.LessOrEqual(t, look().Age, Period+2*time.Second+held*every, "after %d changes", i)
		}
	})
}

// However far its events or bookmarks are apart, a resource costs one request in a period, and its age keeps its bound.
func TestCostWhateverTheGaps(t *testing.T) {
	event := func(w *world) { w.change(1) }
	bookmark := func(w *world) { w.set(func(w *world) { w.stored, w.received = w.server, w.server }) }
	for _, gap := range []time.Duration{500, 1500, 2000, 2700, 3000, 3300, 3700, 4000, 4500, 5000, 5300, 7000, 11000, 13000} {
		gap *= time.Millisecond
		t.Run(gap.String(), func(t *testing.T) { costs(t, gap, event) })
		t.Run("bookmark/"+gap.String(), func(t *testing.T) { costs(t, gap, bookmark) })
	}
}

func costs(t *testing.T, gap time.Duration, move func(*world)) {
	w := newWorld()
	w.answerWatchAfter = slowestBookmark
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
		fenced, watched := w.requests()
		require.LessOrEqual(t, fenced+watched, int(lasts/Period)+1, "%d fences, %d watches", fenced, watched)
		require.GreaterOrEqual(t, fenced, int(lasts/Period)/2)
		require.LessOrEqual(t, oldest, 2*Period+5*time.Second)
		require.Zero(t, c.count(Stalled)+c.count(Lagging))
	})
}

// With very many caches the period is longer, but what the bound leaves for a watch is not.
func TestTimeLeftWhateverThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, err := w.Fence(t.Context(), pods)
		require.NoError(t, err)
		c := &probed{m: New(Options{Prover: w}), gvr: pods, state: Quiet}
		for _, period := range []time.Duration{Period, 3 * Period} {
			w.fences[0].TakenAt = time.Now().Add(-period - confirmWait)
			require.True(t, c.hasTime(period), "period %v, no fence left out", period)
			w.fences[0].TakenAt = time.Now().Add(-2*period - confirmWait)
			require.False(t, c.hasTime(period), "period %v, one fence left out", period)
		}
	})
}

// What a breaker's proof needs comes in place of what the monitor would have asked, not on top.
func TestFencesOfOthersStandIn(t *testing.T) {
	for _, test := range []struct{ every, changes, own time.Duration }{
		{every: 2 * time.Second, changes: 500 * time.Millisecond},
		{every: 4900 * time.Millisecond, changes: 500 * time.Millisecond},
		{every: 8 * time.Second, changes: 500 * time.Millisecond, own: 8 * time.Second},
		{every: 2 * time.Second, changes: time.Hour},
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
						require.LessOrEqual(t, look().Age, 2*Period+5*time.Second)
					}
				}
				fenced, watched := w.requests()
				own := 0
				if test.own > 0 {
					own = int(lasts / test.own)
				}
				require.LessOrEqual(t, fenced, others+own+2, "%d of others", others)
				require.LessOrEqual(t, watched, int(lasts/(2*Period))+1)
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
		require.LessOrEqual(t, got.Age, time.Since(held)+Period+2*time.Second)
		_, watched := w.requests()
		require.Equal(t, 1, watched, "one watch finds it, none are needed while it lasts")
		c.note(func() {
			require.InDelta(t, time.Since(got.Since)/time.Second, c.stalled, 4, "help is called for every second")
		})

		time.Sleep(10 * time.Second)
		w.set(func(w *world) { w.moves = true })
		busy(w, 10*time.Second)
		require.Equal(t, Fresh, look().State)
		require.Equal(t, 1, c.count(Stalled), "each change is told once")
	})
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
				fenced, _ := w.requests()
				go busy(w, 2*Period)
				for n := fenced; n == fenced; n, _ = w.requests() {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(Period + after) // The next one is taken now.
				w.set(func(w *world) { w.moves = false })
				held := time.Now()
				go busy(w, 20*time.Second)
				for got := look(); got.State != Stalled && got.State != Lagging; got = look() {
					require.Less(t, time.Since(held), 10*time.Second)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
				require.Equal(t, Stalled, look().State)
				require.GreaterOrEqual(t, look().Age+time.Second/2, time.Since(held))
				require.LessOrEqual(t, look().Age, time.Since(held)+Period+2*time.Second)
				time.Sleep(20 * time.Second) // The changes end.
			})
		})
	}
}

func TestQueueIsToldFromWatch(t *testing.T) {
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
				require.LessOrEqual(t, got.Age, delay*time.Second+Period+2*time.Second)
			}
		}
		_, watched := w.requests()
		require.LessOrEqual(t, watched, 2, "late events show the lag without a request")
	})
}

func TestServerThatPushesBack(t *testing.T) {
	for reason, most := range map[freshness.Reason]int{
		freshness.ReasonThrottled: 8, freshness.ReasonTimeout: 8, freshness.ReasonForbidden: 7, freshness.ReasonNoServer: 37,
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorld()
			run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
				busy(w, 10*time.Second)
				w.set(func(w *world) {
					w.fenced, w.failure = 0, &freshness.Error{Resource: pods, Reason: reason, Err: errors.New("no")}
				})
				time.Sleep(3 * time.Minute)
				fenced, _ := w.requests()
				require.LessOrEqual(t, fenced, most)
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
		fenced, _ := w.requests()
		w.set(func(w *world) {
			w.answerAfter, w.failure = 10*time.Second, &freshness.Error{Resource: pods, Reason: freshness.ReasonTimeout, Err: errors.New("no answer")}
		})
		for n := fenced; n == fenced; n, _ = w.requests() {
			busy(w, time.Second)
		}
		w.set(func(w *world) { w.answerAfter, w.failure = 0, nil })
		for range 8 {
			busy(w, time.Second)
			got, _ := w.requests()
			require.Equal(t, fenced+1, got)
		}
		busy(w, 20*time.Second)
		require.Equal(t, Fresh, look().State)
		require.Equal(t, unknown, c.count(Unknown))
	})
}

// What was proven does not hold for ever, whatever the requests do.
func TestUnansweredIsNotCalledFresh(t *testing.T) {
	w := newWorld()
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		busy(w, 20*time.Second)
		w.set(func(w *world) { w.answerAfter = 2 * time.Minute })
		time.Sleep(knownPeriods*Period - Period)
		require.Equal(t, Fresh, look().State)
		time.Sleep(Period + 2*time.Second)
		got := look()
		require.Equal(t, Unknown, got.State)
		require.Equal(t, string(freshness.ReasonTimeout), got.Reason)
		require.Contains(t, got.Detail, "nothing has been answered for 35s")
		w.set(func(w *world) { w.answerAfter = 0 })
		busy(w, 3*time.Minute)
		require.Equal(t, Fresh, look().State)
	})
}

func TestRewind(t *testing.T) {
	w := newWorld()
	run(t, w, func(m *Monitor, _ *counts, look func() Cache) {
		busy(w, 10*time.Second)
		w.set(func(w *world) {
			w.server, w.changed, w.fences, w.quietUpTo = 50, 50, nil, 0
			w.failure = &freshness.Error{Resource: pods, Reason: freshness.ReasonRewind, Err: errors.New("rewound")}
		})
		m.Rewound(pods)
		time.Sleep(time.Second)
		got := look()
		require.Equal(t, Stalled, got.State)
		require.Equal(t, ReasonRewind, got.Reason)
		require.Zero(t, got.Proven, "there is no bound")
		w.set(func(w *world) { w.stored, w.received, w.failure = 50, 50, nil })
		busy(w, time.Minute)
		require.Equal(t, Fresh, look().State)
	})
}

func TestNotSyncedIsNotAsked(t *testing.T) {
	w := newWorld()
	w.stored, w.received, w.moves = 0, 0, false
	run(t, w, func(_ *Monitor, _ *counts, look func() Cache) {
		time.Sleep(time.Minute)
		require.Equal(t, ReasonNotSynced, look().Reason)
		fenced, _ := w.requests()
		require.Zero(t, fenced)
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
		fenced, watched := w.requests()
		time.Sleep(time.Minute)
		fencedLater, watchedLater := w.requests()
		require.Equal(t, [2]int{fenced, watched}, [2]int{fencedLater, watchedLater}, "nobody asks about it")

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
