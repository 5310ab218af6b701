// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// quietCache stands still until it is changed, and its prover takes a while.
type quietCache struct {
	*busyCache
	version version
}

func (q *quietCache) LastStoreSyncResourceVersion() string { return string(q.version) }

func (q *quietCache) Prove(ctx context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	proof := q.busyCache.Prove(ctx, pods, asOf)
	proof.ResourceVersion = string(q.version)
	return proof
}

// onePod is what was counted: a pod that was last changed at the version of now, or before the test.
func onePod(now func() string) consistency.Counted {
	return consistency.Counted{Resource: pods, List: func() ([]any, error) {
		return []any{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: now()}}}, nil
	}}
}

func loweringStore(t *testing.T, p interface {
	Prover
	consistency.LastSyncRVGetter
}) (store *Store, queue chan string, lower func(to int32, counted consistency.Counted) (int32, error)) {
	store = passStore(t.Context(), p, nil)
	queue = make(chan string, 9)
	store.OnReady(func(key string) { queue <- key })
	store.Follow(pods, p)
	return store, queue, func(to int32, counted consistency.Counted) (int32, error) {
		return consistency.ProveLowered(consistency.WithReading(t.Context(), store, "ns/a"), "", to, counted)
	}
}

// What a value was computed from is proven as of when it was: what has come since its reading began does not count.
func TestWhatWasCountedIsProvenAsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &busyCache{takes: 30 * time.Millisecond, fences: []time.Time{time.Now()}}
		store, _, _ := loweringStore(t, cache)
		ctx := consistency.WithReading(t.Context(), store, "ns/a")
		time.Sleep(time.Second)
		to, err := consistency.ProveLowered(ctx, "", 3, onePod(func() string { return "1" }))
		require.NoError(t, err, "others' objects may have changed")
		require.EqualValues(t, 3, to)
		require.Len(t, cache.fences, 2, "the proof of a second ago is too old")
	})
}

// While a value waits for a slow proof, others are measured. It is lowered by the first, which the proof is of, unless the last calls for more, or what is
// counted has changed.
func TestAValueIsLoweredByWhatWasProven(t *testing.T) {
	for name, test := range map[string]struct {
		first, second, want int32
		changed             bool
		fences              int
	}{
		"less, later":                 {first: 3, second: 2, want: 3, fences: 1},
		"more, later":                 {first: 3, second: 5, want: 5, fences: 1},
		"less, later, by another pod": {first: 3, second: 2, want: 2, changed: true, fences: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := &quietCache{busyCache: &busyCache{takes: 1700 * time.Millisecond, turn: make(chan struct{}, 1)}, version: "5"}
				_, queue, lower := loweringStore(t, cache)
				changed := "5"
				pod := onePod(func() string { return changed })
				_, err := lower(test.first, pod)
				require.Error(t, err)
				require.Equal(t, "ns/a", <-queue)
				if test.changed {
					changed, cache.version = "6", "6"
				}
				to, err := lower(test.second, pod)
				require.NoError(t, err)
				require.Equal(t, test.want, to)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Len(t, cache.fences, test.fences)
			})
		})
	}
}

// Nothing that wants a proof of now asks for another each time it comes back, however long proofs and the queue take, and whether or not what it has
// read changes all the time.
func TestNoReadingAsksForProofsOfNowWithoutEnd(t *testing.T) {
	moving := func() string { return (&busyCache{}).LastStoreSyncResourceVersion() }
	for name, ask := range map[string]func(p consistency.Pass) bool{
		"decision": func(p consistency.Pass) bool {
			return p.(consistency.DecidingPass).Decide(t.Context(), consistency.Decision{Resource: pods, Now: true, Cached: func() bool { return true }})
		},
		"exact": func(p consistency.Pass) bool {
			return p.(consistency.ExactPass).ProveExact(t.Context(), "", pods) == nil
		},
		"lowered": func(p consistency.Pass) bool {
			_, err := p.(consistency.LoweringPass).ProveLowered(t.Context(), "", 3, onePod(func() string { return "1" }))
			return err == nil
		},
		"lowered, counted from what changes": func(p consistency.Pass) bool {
			_, err := p.(consistency.LoweringPass).ProveLowered(t.Context(), "", 3, onePod(moving))
			return err == nil
		},
	} {
		for _, busy := range []bool{true, false} {
			for _, queued := range []time.Duration{0, time.Second, 2100 * time.Millisecond, 30 * time.Second} {
				for _, takes := range []time.Duration{5 * time.Millisecond, 300 * time.Millisecond, 1700 * time.Millisecond, 5 * time.Second} {
					t.Run(fmt.Sprint(name, busy, queued, takes), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							cache := &busyCache{takes: takes, turn: make(chan struct{}, 1)}
							store, queue, _ := loweringStore(t, cache)
							if !busy {
								quiet := &quietCache{busyCache: cache, version: version(strconv.Itoa(1 << 60))}
								store, queue, _ = loweringStore(t, quiet)
							}
							store.wasSlow()
							queue <- "ns/a"
							for tries := 1; ; tries++ {
								require.LessOrEqual(t, tries, 3)
								<-queue
								time.Sleep(queued)
								store.wasSlow() // Another value's: nobody waits for this one.
								if ask(store.Reading("ns/a")) {
									break
								}
							}
							time.Sleep(10 * time.Second)
							synctest.Wait()
							require.LessOrEqual(t, len(cache.fences), 4)
							require.Empty(t, store.waiting)
						})
					})
				}
			}
		}
	}
}
