// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// passStore is the store of a controller that makes passes.
func passStore(ctx context.Context, p Prover, caches map[schema.GroupResource]consistency.LastSyncRVGetter) *Store {
	s := newStore(rvtracker.New(rvtracker.Options{}), "test", caches)
	s.ctx, s.prover = ctx, &answers{Prover: p}
	return s
}

// An action whose caches are not proven waits, the others of the pass do not, and it is taken soon after it may be.
func TestAnActionOfAPassWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reached := version("5")
		prover := &script{nodes: stale, release: make(chan struct{})}
		store := passStore(ctx, prover, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		began := time.Now()
		var mu sync.Mutex
		var passes []time.Duration
		taken := map[string]time.Duration{}
		look := func() ([]time.Duration, map[string]time.Duration) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(passes), maps.Clone(taken)
		}
		go consistency.Passes(ctx, store, func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			passes = append(passes, time.Since(began))
			for action, needs := range map[string][]schema.GroupResource{"by nodes": {nodes}, "by pods": {pods}} {
				if _, done := taken[action]; !done && consistency.ProvePass(ctx, action, needs...) == nil {
					taken[action] = time.Since(began)
				}
			}
		}, 20*time.Second)

		time.Sleep(45 * time.Second)
		made, done := look()
		require.Equal(t, map[string]time.Duration{"by pods": 0}, done)
		require.Equal(t, []time.Duration{0, 20 * time.Second, 40 * time.Second}, made, "while it waits, passes are made as always")
		require.NotEmpty(t, store.held.owners[stalenessz.ForAction], "it is shown that it waits")
		prover.answer(fresh)
		close(prover.release)
		time.Sleep(time.Second)
		_, done = look()
		require.Equal(t, 45*time.Second, done["by nodes"])
		time.Sleep(30 * time.Second)
		made, _ = look()
		require.Equal(t, []time.Duration{0, 20 * time.Second, 40 * time.Second, 45 * time.Second, 65 * time.Second}, made)
		require.Empty(t, store.held.owners[stalenessz.ForAction])
		require.Empty(t, store.putOffs)
		require.Empty(t, store.ahead)
	})
}

// A cache that moves all the time is proven before the pass reads it, a second later, and in each pass.
func TestAPassReadsABusyCacheAfterTheProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cache := &busyCache{takes: 30 * time.Millisecond}
		store := passStore(ctx, cache, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache})
		var passes, taken atomic.Int32
		go consistency.Passes(ctx, store, func(ctx context.Context) {
			passes.Add(1)
			if consistency.ProvePass(ctx, "action", pods) == nil {
				taken.Add(1)
			}
		}, 20*time.Second)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, passes.Load())
		require.EqualValues(t, 1, taken.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, int(taken.Load()), 3, "no action waits without end")
		require.LessOrEqual(t, len(cache.fences), 2*int(passes.Load()))
	})
}

// Frequent passes do much besides: a slow proof holds none of them up for long, and the action comes soon after it.
func TestFrequentPassesWaitBriefly(t *testing.T) {
	for _, takes := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, time.Second, 5 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cache := &busyCache{takes: takes, turn: make(chan struct{}, 1)}
				store := passStore(ctx, cache, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache})
				began := time.Now()
				var before atomic.Int32
				var taken atomic.Int64
				go consistency.Passes(ctx, store, func(ctx context.Context) {
					if taken.Load() != 0 {
						return
					}
					before.Add(1)
					if consistency.ProvePass(ctx, "action", pods) == nil {
						taken.Store(int64(time.Since(began)))
					}
				}, 100*time.Millisecond)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.NotZero(t, taken.Load())
				require.Greater(t, float64(before.Load()), 4*time.Duration(taken.Load()).Seconds(), "passes while it waited")
				require.Less(t, time.Duration(taken.Load()), 3*takes+time.Second)
				cancel()
				synctest.Wait()
				require.LessOrEqual(t, len(cache.fences), 12, "fences in 20 s")
			})
		})
	}
}

// A pass that waits for its other writes takes no action by what was proven before them, if another pass comes soon. A rare one does, as it read all when it
// began.
func TestALongPassLeavesActionsToTheNext(t *testing.T) {
	for period, want := range map[time.Duration][]int{100 * time.Millisecond: {1, 1}, 20 * time.Second: {2, 2}} {
		t.Run(period.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				reached := version("5")
				store := passStore(ctx, &script{nodes: fresh}, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached})
				var taken []int // by each pass
				consistency.Passes(ctx, store, func(ctx context.Context) {
					n := 0
					for range 2 {
						if consistency.ProvePass(ctx, "action", nodes) == nil {
							n++
							time.Sleep(ProofAge + time.Second)
						}
					}
					if taken = append(taken, n); len(taken) == len(want) {
						cancel()
					}
				}, period)
				require.Equal(t, want, taken)
			})
		})
	}
}

// No proof from before this process led is good for a pass.
func TestAPassTrustsNoProofFromBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &busyCache{takes: time.Millisecond, fences: []time.Time{time.Now()}}
		store := passStore(t.Context(), cache, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache})
		time.Sleep(time.Second)
		store.since = time.Now()
		time.Sleep(100 * time.Millisecond)
		store.pass(t.Context(), func(ctx context.Context) { _ = consistency.ProvePass(ctx, "action", pods) }, nil, promptly)
		require.Len(t, cache.fences, 2)
	})
}

// Without a store that can tell, passes are upstream's.
func TestPassesWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		passes := 0
		go consistency.Passes(ctx, consistency.NewNoopConsistencyStore(), func(ctx context.Context) {
			require.NoError(t, consistency.ProvePass(ctx, "action", pods))
			passes++
		}, 20*time.Second)
		time.Sleep(50 * time.Second)
		cancel()
		synctest.Wait()
		require.Equal(t, 3, passes)
	})
}
