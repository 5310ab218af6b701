// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// protectedGroup is that of the resources whose caches protected controllers read, othersGroup that of all others.
const protectedGroup, othersGroup = "protected", "others"

// fleet is the caches of a process, and the prover of all of them.
type fleet struct {
	m      *Monitor
	counts *counts
	worlds map[schema.GroupVersionResource]*world
	every  map[schema.GroupVersionResource]time.Duration // between changes, 0 for none
}

func (f *fleet) add(group string, n, size int, every time.Duration) (added []*world) {
	for range n {
		w := newWorld()
		w.gvr = schema.GroupVersionResource{Group: group, Version: "v1", Resource: strconv.Itoa(len(f.worlds))}
		w.size, w.answerAfter, w.answerWatchAfter = size, 20*time.Millisecond, slowestBookmark
		f.worlds[w.gvr], f.every[w.gvr] = w, every
		added = append(added, w)
	}
	return added
}

func (f *fleet) Fence(ctx context.Context, gvr schema.GroupVersionResource) (freshness.Fence, error) {
	return f.worlds[gvr].Fence(ctx, gvr)
}

func (f *fleet) AwaitFence(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, bool) {
	return f.worlds[gvr].AwaitFence(ctx, gvr, asOf, wait)
}

func (f *fleet) ProveByList(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, error) {
	return f.worlds[gvr].ProveByList(ctx, gvr, asOf, wait)
}

func (f *fleet) ProveByWatch(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (freshness.Proof, error) {
	return f.worlds[gvr].ProveByWatch(ctx, gvr, asOf)
}

func (f *fleet) Known(gvr schema.GroupVersionResource) (freshness.Proof, bool) {
	return f.worlds[gvr].Known(gvr)
}

// asked counts the requests so far.
func (f *fleet) asked() (n int) {
	for _, w := range f.worlds {
		n += w.requests().all()
	}
	return n
}

// pass lets time go on, with the changes of the resources, and calls look every half second, or less often if there are very many.
func (f *fleet) pass(lasts time.Duration, look func()) {
	step, every := 100*time.Millisecond, 5
	switch n := len(f.worlds); {
	case n > 500:
		step, every = 2*time.Second, 2
	case n > 100:
		step, every = 500*time.Millisecond, 2
	}
	for i := range int(lasts / step) {
		for gvr, w := range f.worlds {
			w.set(func(w *world) { w.server++ })
			if every := f.every[gvr]; every > 0 && i%max(1, int(every/step)) == 0 {
				w.change(1)
			}
		}
		time.Sleep(step)
		if i%every == 0 && look != nil {
			synctest.Wait()
			look()
		}
	}
}

// runFleet runs a monitor of many caches for a test in a bubble.
func runFleet(t *testing.T, fill func(f *fleet), test func(f *fleet)) {
	t.Helper()
	f := &fleet{worlds: map[schema.GroupVersionResource]*world{}, every: map[schema.GroupVersionResource]time.Duration{}}
	fill(f)
	synctest.Test(t, func(t *testing.T) {
		f.counts = newCounts()
		informers := map[schema.GroupVersionResource]Informer{}
		for gvr, w := range f.worlds {
			informers[gvr] = w
		}
		nothing := func(schema.GroupVersionResource, Informer) {}
		f.m = New(Options{
			Prover: f, Metrics: f.counts, Register: nothing, Forget: nothing,
			Protected: func(gvr schema.GroupVersionResource) bool { return gvr.Group == protectedGroup },
			Informers: func() map[schema.GroupVersionResource]Informer { return informers },
		})
		for _, w := range f.worlds {
			w.m = f.m
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.m.Run(ctx) }()
		defer func() { cancel(); <-done }()
		test(f)
	})
}

// A cluster's caches that protected controllers read.
var mixes = map[string]func(f *fleet){
	"idle": func(f *fleet) { f.add(protectedGroup, 10, 20, 0); f.add(protectedGroup, 5, 0, 0) },
	"busy": func(f *fleet) {
		f.add(protectedGroup, 3, large, 300*time.Millisecond)
		f.add(protectedGroup, 4, 50, 700*time.Millisecond)
		f.add(protectedGroup, 2, 50, 5*time.Second)
		f.add(protectedGroup, 1, large, 0)
		f.add(protectedGroup, 3, 10, 0)
		f.add(protectedGroup, 2, 0, 0)
	},
	"large": func(f *fleet) {
		f.add(protectedGroup, 2, large, 400*time.Millisecond)
		f.add(protectedGroup, 5, large, 0)
		f.add(protectedGroup, 4, 60, 0)
		f.add(protectedGroup, 4, 0, 0)
	},
}

// All caches of a process together cost 2 requests a second or fewer, however many there are, and those that
// protected controllers read keep their bound at every moment.
func TestCostOfAllCaches(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	for name, protected := range mixes {
		for _, others := range []int{46, 146, 1046} {
			if others > 46 && name != "busy" {
				continue // Of many caches it is the others that cost.
			}
			t.Run(fmt.Sprintf("%s, %d others", name, others), func(t *testing.T) {
				runFleet(t, func(f *fleet) {
					protected(f)
					f.add(othersGroup, 6, 30, 500*time.Millisecond)
					f.add(othersGroup, 4, large, 0)
					f.add(othersGroup, 16, 10, 0)
					f.add(othersGroup, 20, 0, 0)
					f.add(othersGroup, others-46, 0, 0)
				}, func(f *fleet) {
					const lasts = 10 * time.Minute
					began := time.Now()
					ages := map[string]time.Duration{}
					never := 0
					f.pass(lasts, func() {
						never = 0
						for _, c := range f.m.Caches() {
							if time.Since(began) > firstWithin+5*time.Second {
								require.False(t, c.Protected && !c.State.healthy(), "%v: %s %s", c.Resource, c.State, c.Reason)
								require.False(t, c.Protected && c.Age > Bound, "%v: %s", c.Resource, c.Age)
							}
							if c.Probed.IsZero() {
								never++
								require.False(t, c.Measured())
							}
							if time.Since(began) > 5*time.Minute { // What was spent at the start is saved again.
								require.LessOrEqual(t, c.Age, 3*c.Every/2+4*Period, "%v is asked about as often as it says", c.Resource)
							}
							ages[c.Resource.Group] = max(ages[c.Resource.Group], c.Age)
						}
					})
					rate := float64(f.asked()) / lasts.Seconds()
					t.Logf("%d caches: %.2f requests a second, ages up to %v, %d not asked yet", len(f.worlds), rate, ages, never)
					require.LessOrEqual(t, rate, 2.0)
					require.Zero(t, f.counts.count(Stalled)+f.counts.count(Lagging))
					require.Equal(t, len(f.worlds), f.counts.count(Unknown), "none but at the start")
					for _, w := range f.worlds {
						require.LessOrEqual(t, w.requests().all(), int(lasts/Period)+1)
					}
				})
			})
		}
	}
}

// noticed returns how soon each of the caches is found to be behind.
func (f *fleet) noticed(t *testing.T, held []*world, within time.Duration) (took []time.Duration) {
	t.Helper()
	for _, w := range held {
		w.set(func(w *world) { w.moves = false })
	}
	since := map[schema.GroupVersionResource]time.Time{}
	for _, w := range held {
		if f.every[w.gvr] == 0 {
			w.change(1)
		}
		since[w.gvr] = time.Now()
	}
	f.pass(within, func() {
		for _, c := range f.m.Caches() {
			if at, ok := since[c.Resource]; ok && (c.State == Stalled || c.State == Lagging) {
				took = append(took, time.Since(at))
				delete(since, c.Resource)
			}
		}
	})
	require.Empty(t, since, "not noticed within %s", within)
	slices.Sort(took)
	return took
}

// longestEvery is how often the one of the caches is asked about that is asked about least.
func (f *fleet) longestEvery(of []*world) (every time.Duration) {
	for _, c := range f.m.Caches() {
		if slices.Contains(of, f.worlds[c.Resource]) {
			every = max(every, c.Every)
		}
	}
	return every
}

// A hundred watches of busy resources are held at once: all are noticed, and paid from what was saved.
func TestManyBusyWatchesHeldAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	runFleet(t, func(f *fleet) {
		mixes["busy"](f)
		f.add(othersGroup, 100, 50, 500*time.Millisecond)
		f.add(othersGroup, 46, 0, 0)
	}, func(f *fleet) {
		f.pass(20*time.Minute, nil) // Enough is saved.
		var held []*world
		for gvr, w := range f.worlds {
			if gvr.Group == othersGroup && f.every[gvr] > 0 {
				held = append(held, w)
			}
		}
		before, began := f.asked(), time.Now()
		took := f.noticed(t, held, 12*time.Second)
		t.Logf("noticed after %v in the median, %v at most, with %d requests", took[50], took[99], f.asked()-before)
		require.LessOrEqual(t, took[99], 10*time.Second)
		f.pass(10*time.Minute, func() {
			for _, c := range f.m.Caches() {
				require.False(t, c.Protected && c.Age > Bound, "%v: %s", c.Resource, c.Age)
			}
		})
		rate := float64(f.asked()-before) / time.Since(began).Seconds()
		t.Logf("%.2f requests a second while they are held", rate)
		require.LessOrEqual(t, rate, 2.0)
	})
}

// A quiet cache that protected controllers read is found behind within 20 s, others within what they say.
func TestHeldWatchesOfQuietResources(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	runFleet(t, func(f *fleet) {
		mixes["large"](f)
		f.add(othersGroup, 26, 10, 0)
		f.add(othersGroup, 320, 0, 0)
	}, func(f *fleet) {
		f.pass(2*time.Minute, nil)
		var held, others []*world
		for gvr, w := range f.worlds {
			switch {
			case gvr.Group == protectedGroup && f.every[gvr] == 0 && w.size > 0:
				held = append(held, w)
			case gvr.Group == othersGroup && w.size > 0:
				others = append(others, w)
			}
		}
		every := f.longestEvery(others)
		took := f.noticed(t, held, 20*time.Second)
		t.Logf("protected: noticed after %v at most", took[len(took)-1])
		for _, w := range held {
			w.set(func(w *world) { w.moves, w.stored, w.received = true, w.changed, w.changed })
		}
		f.pass(20*time.Second, nil)
		for _, c := range f.m.Caches() {
			require.False(t, c.Protected && !c.State.healthy(), "%v is whole again: %s", c.Resource, c.State)
		}
		took = f.noticed(t, others, every+2*Period)
		t.Logf("others: noticed after %v at most, asked about every %v", took[len(took)-1], every)
	})
}

// Of many quiet caches held at once those that no protected controller reads are found as soon as they say, too: the others, once known to be behind, take
// no turns of theirs.
func TestHeldWatchesOfAllQuietResourcesAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	// Turns come in bunches, so it goes by the moment, and by how much is saved until then.
	for _, saved := range []time.Duration{10 * time.Minute, 20 * time.Minute} {
		for after := saved; after < saved+50*time.Second; after += 2 * time.Second {
			runFleet(t, func(f *fleet) {
				mixes["idle"](f)
				f.add(othersGroup, 20, 10, 0)
				f.add(othersGroup, 26, 0, 0)
			}, func(f *fleet) {
				f.pass(after, nil)
				var held []*world
				for _, w := range f.worlds {
					if w.size > 0 {
						held = append(held, w)
					}
				}
				every := f.longestEvery(held)
				took := f.noticed(t, held, every+4*Period)
				t.Logf("after %v: noticed after %v in the median, %v at most, asked about every %v", after, took[len(took)/2], took[len(took)-1], every)
			})
		}
	}
}

// What the server refuses costs the others nothing, and no more than its part.
func TestRefusedResources(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	for _, reason := range []freshness.Reason{"Throttled", freshness.ReasonForbidden, freshness.ReasonTimeout} {
		t.Run(string(reason), func(t *testing.T) {
			runFleet(t, func(f *fleet) {
				mixes["busy"](f)
				f.add(othersGroup, 46, 10, 0)
				for _, w := range slices.Concat(f.add(othersGroup, 300, 10, 0), f.add(protectedGroup, 1, 10, 0)) {
					w.failure = &freshness.Error{Resource: w.gvr, Reason: reason, Err: errors.New("no")}
					if reason == freshness.ReasonTimeout {
						w.answerAfter = 10 * time.Second
					}
				}
			}, func(f *fleet) {
				const lasts = 10 * time.Minute
				began := time.Now()
				f.pass(lasts, func() {
					for _, c := range f.m.Caches() {
						if c.Protected && time.Since(began) > firstWithin+5*time.Second && f.worlds[c.Resource].failure == nil {
							require.True(t, c.State.healthy() && c.Age <= Bound, "%v: %s, %s", c.Resource, c.State, c.Age)
						}
					}
				})
				rate := float64(f.asked()) / lasts.Seconds()
				t.Logf("%.2f requests a second", rate)
				require.LessOrEqual(t, rate, 2.0)
			})
		})
	}
}

// After an outage all caches are known again within a minute, and in it none is called good for long.
func TestOutage(t *testing.T) {
	runFleet(t, func(f *fleet) {
		mixes["busy"](f)
		f.add(othersGroup, 46, 10, 0)
	}, func(f *fleet) {
		f.pass(5*time.Minute, nil)
		all := func(change func(w *world)) {
			for _, w := range f.worlds {
				w.set(change)
			}
		}
		all(func(w *world) {
			w.moves, w.answerAfter, w.answerWatchAfter = false, 10*time.Second, 10*time.Second
			w.failure = &freshness.Error{Resource: w.gvr, Reason: freshness.ReasonTimeout, Err: errors.New("no answer")}
		})
		began := time.Now()
		f.pass(5*time.Minute, func() {
			for _, c := range f.m.Caches() {
				require.False(t, c.State.healthy() && time.Since(began) > outageAfter+10*time.Second, "%v is called %s", c.Resource, c.State)
			}
		})
		all(func(w *world) {
			w.moves, w.answerAfter, w.answerWatchAfter, w.failure = true, 20*time.Millisecond, slowestBookmark, nil
			w.stored, w.received = w.changed, w.changed
		})
		f.pass(time.Minute, nil)
		for _, c := range f.m.Caches() {
			require.True(t, c.State.healthy(), "%v: %s %s", c.Resource, c.State, c.Reason)
		}
	})
}
