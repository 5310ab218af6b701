// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// empty takes every object away, from the server and the cache.
func (w *world) empty() {
	for key := range stateAt(w.api.history, w.api.rv) {
		w.api.write(key, "uid", true)
	}
	w.view.sync(w.api.bump(0))
}

// takeFence takes one that is later than those before.
func (w *world) takeFence() Fence {
	w.Helper()
	time.Sleep(time.Second)
	fence, err := w.p.Fence(w.Context(), leases)
	require.NoError(w, err)
	return fence
}

func TestKnown(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		_, ok := w.p.Known(leases)
		require.False(w, ok)
		first := w.takeFence()
		proof, ok := w.p.Known(leases)
		require.True(w, ok)
		require.Equal(w, first.TakenAt, proof.At)

		w.api.bump(50)
		second := w.takeFence()
		proof, _ = w.p.Known(leases)
		require.Equal(w, first.TakenAt, proof.At, "the cache has not passed the second")
		w.view.sync(160)
		proof, _ = w.p.Known(leases)
		require.Equal(w, second.TakenAt, proof.At)
		require.Equal(w, 2, len(w.api.requests), "it asks for nothing")

		w.view.sync(105)
		_, ok = w.p.Known(leases)
		require.False(w, ok, "the cache went back")
		_, ok = w.p.Known(schema.GroupVersionResource{Resource: "unregistered"})
		require.False(w, ok)
	})
}

// A bookmark that is behind the proof's fence takes nothing away from an empty cache, an object does.
func TestAnEmptyCacheMayMove(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.empty()
		w.api.bump(50)
		at := w.view.ResourceVersion()
		fence := w.takeFence()
		for _, moved := range []string{at, w.api.text(130), w.api.text(140)} {
			w.view.set(moved, nil)
			proof, ok := w.p.Known(leases)
			require.True(w, ok, "at %s", moved)
			require.Equal(w, fence.TakenAt, proof.At)
			require.Equal(w, moved, proof.ResourceVersion)
			require.True(w, proof.Exact)
		}
		w.view.set(w.api.text(135), nil)
		_, ok := w.p.Known(leases)
		require.False(w, ok, "the cache went back")

		fence = w.takeFence()
		w.view.set(w.api.text(145), map[string]object{"ns/new": {"n", w.api.text(145)}})
		_, ok = w.p.Known(leases)
		require.False(w, ok, "it is not known whether the object is still there")
	})
}

// The fence of an empty collection is the proof, as long as the cache is empty, too.
func TestFenceOfAnEmptyCollection(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.empty()
		w.api.bump(50)
		fence := w.takeFence()
		proof, ok := w.p.AwaitFence(w.Context(), leases, fence.TakenAt, 0)
		require.True(w, ok)
		require.Equal(w, fence.TakenAt, proof.At)
		require.True(w, proof.Exact)
		require.Len(w, w.api.requests, 1)

		w.api.write("ns/new", "n", false)
		fence = w.takeFence()
		_, ok = w.p.AwaitFence(w.Context(), leases, fence.TakenAt, time.Second)
		require.False(w, ok, "the object that came with the fence is missing")
		proof, err := w.p.ProveByWatch(w.Context(), leases, fence.TakenAt)
		require.NoError(w, err)
		require.Equal(w, Stale, proof.Outcome)
	})
}

// An object that came and went is in no list: the fence proves nothing once the cache has moved.
func TestFenceOfAnEmptyCollectionHoldsWhileTheCacheStandsStill(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.empty()
		created := w.api.write("ns/short", "s", false)
		w.api.write("ns/short", "s", true)
		fence := w.takeFence()
		_, ok := w.p.AwaitFence(w.Context(), leases, fence.TakenAt, 0)
		require.True(w, ok, "what the cache shows is what the server has")
		w.view.sync(created)
		_, ok = w.p.AwaitFence(w.Context(), leases, fence.TakenAt, 0)
		require.False(w, ok, "now it shows an object that the server had deleted")
	})
}

func TestFenceAsksForNoObject(t *testing.T) {
	for name, tc := range map[string]struct {
		namespaced, known bool
		path, query       string
	}{
		"namespaced":     {true, true, "/apis/coordination.k8s.io/v1/namespaces/fresh-kcm-fence/leases", "limit=1"},
		"cluster-scoped": {false, true, "/apis/coordination.k8s.io/v1/leases", "fieldSelector=metadata.name%3Dfresh-kcm-fence&limit=1"},
		"not known":      {false, false, "/apis/coordination.k8s.io/v1/leases", "limit=1"},
	} {
		t.Run(name, func(t *testing.T) {
			scope := func(schema.GroupVersionResource) (bool, bool) { return tc.namespaced, tc.known }
			inWorld(t, Options{Namespaced: scope}, func(w *world) {
				for range 3 {
					w.takeFence()
				}
				for _, r := range w.api.requests {
					require.Equal(w, tc.path, r.URL.Path)
					require.Equal(w, tc.query, r.URL.RawQuery)
				}
				w.empty()
				w.takeFence()
				last := w.api.requests[len(w.api.requests)-1]
				require.False(w, strings.Contains(last.URL.String(), noName), "an empty collection is asked for an object")
			})
		})
	}
}

func TestProveAtOnce(t *testing.T) {
	requests := func(w *world) [3]int { return [3]int{w.api.count(isFence), w.api.count(isList), w.api.count(isWatch)} }
	for name, tc := range map[string]struct {
		opts   Options
		before func(w *world) // the store has ten objects, at 110; the server is 50 on
		want   Outcome
		costs  [3]int // fences, lists, watches
		takes  time.Duration
	}{
		"quiet": {want: Proven, costs: [3]int{0, 1, 0}},
		"busy": {want: Proven, costs: [3]int{0, 1, 0}, before: func(w *world) {
			w.api.write("ns/a", "uid", false)
			w.duringList(func() { w.view.sync(w.api.bump(0)) })
		}},
		"behind": {want: Stale, costs: [3]int{0, 1, 0}, takes: 250 * time.Millisecond, before: func(w *world) { w.api.write("ns/a", "uid", false) }},
		"proven already": {want: Proven, costs: [3]int{1, 0, 0}, before: func(w *world) {
			w.view.sync(w.api.bump(0))
			w.takeFence()
		}},
		"large": {want: Proven, costs: [3]int{1, 0, 1}, opts: Options{SmallCollection: 9}, takes: 2 * time.Second, before: func(w *world) {
			w.api.bookmarkAt = 1750 * time.Millisecond
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.opts, func(w *world) {
				w.api.bump(50)
				asOf := time.Now()
				if tc.before != nil {
					tc.before(w)
				}
				start := time.Now()
				proof, err := w.p.ProveAtOnce(w.Context(), leases, asOf)
				require.NoError(w, err)
				require.Equal(w, tc.want, proof.Outcome, proof.String())
				require.False(w, proof.At.Before(asOf))
				require.Equal(w, tc.costs, requests(w), "fences, lists, watches")
				require.Equal(w, tc.takes, time.Since(start))
			})
		})
	}
	inWorld(t, Options{}, func(w *world) {
		w.view.set("x", nil)
		proof, err := w.p.ProveAtOnce(w.Context(), leases, time.Now())
		require.NoError(w, err)
		w.requireUnknown(proof, ReasonIncomparable)
		_, err = w.p.ProveAtOnce(w.Context(), leases.GroupResource().WithVersion("other"), time.Now())
		require.ErrorIs(w, err, errNotRegistered)
	})
}

// After a restore with bumped revisions the server's objects are older than what the cache has passed.
func TestStaleByAnotherHistory(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.write("ns/a", "uid", false) // 111
		w.view.sync(111)
		w.api.mu.Lock()
		w.api.history = w.api.history[:len(w.api.history)-1]
		w.api.mu.Unlock()
		w.api.bump(1000)
		proof := w.prove(time.Now())
		require.Equal(w, Stale, proof.Outcome)
		require.Equal(w, "1111", proof.ResourceVersion, "the cache must be relisted: it will not wait for what it has passed")
	})
}

func TestProveByWatchListsNothing(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		fence := w.takeFence()
		proof, err := w.p.ProveByWatch(w.Context(), leases, fence.TakenAt)
		require.NoError(w, err)
		w.requireProven(proof, methodWatch)
		require.Equal(w, 1, w.api.count(isWatch))
		require.Zero(w, w.api.count(func(r *http.Request) bool { return isList(r) }))
		known, ok := w.p.Known(leases)
		require.True(w, ok)
		require.Equal(w, fence.TakenAt, known.At)

		w.api.bump(50)
		fence = w.takeFence()
		begin := time.Now()
		_, ok = w.p.AwaitFence(w.Context(), leases, fence.TakenAt, time.Minute)
		require.False(w, ok)
		require.Equal(w, begin, time.Now(), "a cache that stands where it was proven quiet is not waited for")

		_, err = w.p.ProveByWatch(w.Context(), schema.GroupVersionResource{Resource: "unregistered"}, fence.TakenAt)
		require.ErrorIs(w, err, errNotRegistered)
	})
}
