// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// verdicts answers for each resource as the test says. It lets waiters go after a second.
type verdicts struct {
	of map[schema.GroupResource]freshness.Proof

	mu    sync.Mutex
	asked []schema.GroupResource
}

func (v *verdicts) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, resource)
	return v.of[resource]
}

func (*verdicts) Known(schema.GroupResource) (freshness.Proof, bool) { return freshness.Proof{}, false }

func (*verdicts) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (*verdicts) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(time.Second)
}

// readingStore follows both caches, and has the queue.
func readingStore(ctx context.Context, p Prover) (*Store, chan string) {
	s := passStore(ctx, p, nil)
	queue := make(chan string, 100)
	s.OnReady(func(key string) { queue <- key })
	for _, resource := range []schema.GroupResource{nodes, pods} {
		reached := version("5")
		s.Follow(resource, &reached)
	}
	return s, queue
}

// A value waits for the caches that it is counted by, others of its object do not, and the key on the queue is the object's.
func TestAValueWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prover := &verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: stale, pods: fresh}}
		store, queue := readingStore(t.Context(), prover)
		ctx := consistency.WithReading(t.Context(), store, "ns/quota")
		require.NoError(t, consistency.ProvePass(ctx, "pods", pods))
		err := consistency.ProvePass(ctx, "count/nodes", nodes)
		require.Error(t, err)
		require.False(t, consistency.Again(err))
		require.NoError(t, consistency.ProvePass(ctx, "pods", pods), "what was proven stays so")
		require.NoError(t, consistency.ProvePass(ctx, "widgets", schema.GroupResource{Resource: "widgets"}), "what is not followed is as upstream's")
		require.Equal(t, "ns/quota", <-queue)

		prover.of[nodes] = fresh
		ctx = consistency.WithReading(t.Context(), store, "ns/quota")
		require.NoError(t, consistency.ProvePass(ctx, "count/nodes", nodes))
		require.Empty(t, store.putOffs)
	})
}

// No value waits without end, whatever the state of its cache.
func TestAValueIsHeldForALimitedTime(t *testing.T) {
	for name, test := range map[string]struct {
		proof freshness.Proof
		first bool
		queue time.Duration
		want  time.Duration
	}{
		"unknown":               {proof: down, want: rvtracker.OwnerLimits.Unknown},
		"the queue is long":     {proof: stale, queue: 2 * sameWait, want: rvtracker.OwnerLimits.Stale},
		"stale":                 {proof: stale, want: rvtracker.OwnerLimits.Stale},
		"no value yet":          {proof: stale, first: true, want: rvtracker.FirstValueLimits.Unknown},
		"nothing is ever known": {proof: absent, want: goOnAfter},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: test.proof}})
				prove := consistency.ProvePass
				if test.first {
					prove = consistency.ProveFirst
				}
				began := time.Now()
				for prove(consistency.WithReading(t.Context(), store, "ns/quota"), "pods", pods) != nil {
					require.Less(t, time.Since(began), 10*time.Minute)
					require.Equal(t, "ns/quota", <-queue)
					time.Sleep(test.queue)
				}
				require.InDelta(t, test.want.Seconds(), time.Since(began).Seconds(), 2+test.queue.Seconds())
				time.Sleep(2 * time.Second)
				synctest.Wait()
			})
		})
	}
}

// A value that is counted by what event handlers keep waits for handlers that are behind a proven cache, but neither without end nor by trying all the time.
func TestAValueWaitsForEventHandlersForALimitedTime(t *testing.T) {
	const catchUp = 3 * time.Second
	type handlers struct {
		exact bool // the proof: by a list, as that of a small collection
		takes time.Duration
	}
	for name, c := range map[string]handlers{
		"they catch up": {takes: catchUp}, "they never do": {takes: rvtracker.OwnerLimits.Unknown},
		"they catch up with a list": {exact: true, takes: catchUp}, "they never catch up with a list": {exact: true, takes: rvtracker.OwnerLimits.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := c.takes
				ahead := fresh
				ahead.ResourceVersion, ahead.Exact = "6", c.exact
				store := passStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: ahead}}, nil)
				queue := make(chan string, 9)
				store.OnReady(func(key string) { queue <- key })
				told := version("5")
				store.Follow(pods, &told)
				began, tries := time.Now(), 0
				for consistency.ProvePass(consistency.WithReading(t.Context(), store, "ns/quota"), "pods", pods) != nil {
					if tries++; tries == 3 {
						require.Len(t, rowsOf(store.Waits), 1)
						require.Contains(t, rowsOf(store.Waits)[0].Why, "event handlers")
						require.Equal(t, briefly, store.patience(), "no proof was slow")
					}
					require.LessOrEqual(t, tries, int(want/handlersAfter)+2)
					require.Equal(t, "ns/quota", <-queue)
					if want == catchUp && time.Since(began) >= catchUp {
						told = "6"
					}
				}
				require.InDelta(t, want.Seconds(), time.Since(began).Seconds(), 1)
				time.Sleep(2 * time.Second)
				synctest.Wait()
			})
		})
	}
}

// A cache that moves all the time is proven before it is read the next time.
func TestABusyCacheIsProvenAheadOfTheNextReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &busyCache{takes: 30 * time.Millisecond}
		store := passStore(t.Context(), cache, nil)
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		store.Follow(pods, cache)
		err := consistency.ProvePass(consistency.WithReading(t.Context(), store, "ns/budget"), "", pods)
		require.True(t, consistency.Again(err))
		require.Equal(t, "ns/budget", <-queue)
		require.NoError(t, consistency.ProvePass(consistency.WithReading(t.Context(), store, "ns/budget"), "", pods))
		require.Empty(t, store.ahead)
	})
}

// slowCache lets who waits go after a second.
type slowCache struct{ *busyCache }

func (slowCache) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(time.Second)
}

// A slow proof keeps no worker from the values behind, and is good for the reading that follows it.
func TestASlowProofOfAValueHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := slowCache{&busyCache{takes: 1700 * time.Millisecond, turn: make(chan struct{}, 1)}}
		store := passStore(t.Context(), cache, nil)
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		store.Follow(pods, cache)
		began := time.Now()
		for _, key := range []string{"ns/a", "ns/b", "ns/c"} {
			require.Error(t, consistency.ProvePass(consistency.WithReading(t.Context(), store, key), "", pods))
		}
		require.Less(t, time.Since(began), 2*briefly)
		for waiting := 3; waiting > 0; {
			key := <-queue
			if consistency.ProvePass(consistency.WithReading(t.Context(), store, key), "", pods) == nil {
				waiting--
			}
		}
		require.Less(t, time.Since(began), 3*time.Second, "one proof is good for all")
		require.LessOrEqual(t, len(cache.fences), 2)
	})
}

// slowCaches let who waits for one of them go after a second.
type slowCaches struct{ busyCaches }

func (slowCaches) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(time.Second)
}

// Nor do many values of one object, or decisions about it: a worker waits for the proof of the first alone, and later for one proof of each resource for all, at once.
func TestManyValuesOfAnObjectHoldNoWorker(t *testing.T) {
	for name, decide := range map[string]func(ctx context.Context, action string, resource schema.GroupResource) bool{
		"values": func(ctx context.Context, action string, resource schema.GroupResource) bool {
			return consistency.ProvePass(ctx, action, resource) == nil
		},
		"decisions": func(ctx context.Context, action string, resource schema.GroupResource) bool {
			return consistency.Decide(ctx, consistency.Decision{Action: action, Resource: resource, Cached: func() bool { return true }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const takes, values, resources = 3 * time.Second, 20, 5
				caches := slowCaches{busyCaches{}}
				store := passStore(t.Context(), caches, nil)
				queue := make(chan string, 9*values)
				store.OnReady(func(key string) { queue <- key })
				of := func(value int) schema.GroupResource {
					return schema.GroupResource{Resource: fmt.Sprint(value % resources)}
				}
				for i := range resources {
					caches.busyCaches[of(i)] = &busyCache{takes: takes, turn: make(chan struct{}, 1)}
					store.Follow(of(i), caches.busyCaches[of(i)])
				}
				decided := map[int]bool{}
				look := func() (took time.Duration) {
					began := time.Now()
					ctx := consistency.WithReading(t.Context(), store, "ns/a")
					for i := range values {
						if !decided[i] && decide(ctx, fmt.Sprint(i), of(i)) {
							decided[i] = true
						}
					}
					return time.Since(began)
				}
				require.Less(t, look(), 2*briefly)
				require.Empty(t, decided)
				for len(decided) < values {
					<-queue
					time.Sleep(5 * time.Second) // The queue is long.
					require.LessOrEqual(t, look(), 2*takes)
				}
			})
		})
	}
}

// A value that another reconcile proves while it waits leaves nothing behind once its wait ends.
func TestAValueThatIsProvenWhileItWaitsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := fresh
		ahead.ResourceVersion = "6"
		store := passStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: ahead}}, nil)
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		told := version("5")
		store.Follow(pods, &told)
		prove := func() error {
			return consistency.ProvePass(consistency.WithReading(t.Context(), store, "ns/quota"), "pods", pods)
		}
		for range 3 {
			require.Error(t, prove())
			<-queue
		}
		require.Error(t, prove())
		told = "6"
		require.NoError(t, prove())
		store.ForgetReading("ns/quota")
		time.Sleep(2 * handlersAfter)
		synctest.Wait()
		require.Empty(t, store.putOffs)
		require.Empty(t, store.ahead)
	})
}

// What is kept of values that wait is found by their object, and goes with it, or with the proof.
func TestWaitingValuesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prover := &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale, nodes: stale}}
		store, queue := readingStore(t.Context(), prover)
		for _, quota := range []string{"ns/gone", "ns/stays"} {
			ctx := consistency.WithReading(t.Context(), store, quota)
			require.Error(t, consistency.ProvePass(ctx, "pods", pods))
			require.Error(t, consistency.ProvePass(ctx, "count/nodes", nodes))
		}
		require.Len(t, store.waiting["ns/gone"], 2)
		for range 4 {
			<-queue
		}
		store.ForgetReading("ns/gone")
		require.Len(t, store.waiting, 1)
		require.Len(t, store.putOffs, 2, "those of the other quota")
		prover.of[pods], prover.of[nodes] = fresh, fresh
		ctx := consistency.WithReading(t.Context(), store, "ns/stays")
		require.NoError(t, consistency.ProvePass(ctx, "pods", pods))
		require.NoError(t, consistency.ProvePass(ctx, "count/nodes", nodes))
		require.Empty(t, store.waiting)
		require.Empty(t, store.putOffs)
	})
}

// A value whose object goes while it waits leaves nothing behind, also when the wait ends later.
func TestAWaitThatOutlivesItsObjectLeavesNothing(t *testing.T) {
	for name, p := range map[string]Prover{
		"stale":      &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}},
		"slow proof": lateProof{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, queue := readingStore(t.Context(), p)
				ctx := consistency.WithReading(t.Context(), store, "ns/gone")
				require.Error(t, consistency.ProvePass(ctx, "pods", pods))
				store.ForgetReading("ns/gone")
				time.Sleep(10 * time.Second) // The wait has ended.
				synctest.Wait()
				require.Empty(t, queue, "nothing is left to look at")
				require.Empty(t, store.waiting)
				require.Empty(t, store.putOffs)
				require.Empty(t, store.ahead)
				require.Empty(t, store.held.owners[stalenessz.ForAction])
			})
		})
	}
}

// What waits under the name of a wait that is over, and has not ended yet, is another wait: it begins now, and with what its own proof says.
func TestAnotherWaitBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := readingStore(t.Context(), &verdicts{})
		owner := types.NamespacedName{Name: ownerOf("ns/again", "pods")}
		ended, end := context.WithCancel(t.Context())
		store.await(t.Context(), owner, &putOff{hold: hold{resource: nodes, proof: down}}, func() bool { <-ended.Done(); return true })
		store.held.actionOf(owner).forgotten = true
		time.Sleep(time.Minute)
		behind := stale
		behind.At = time.Now()
		store.await(t.Context(), owner, &putOff{wants: want{resource: pods}, hold: hold{resource: pods, proof: behind}}, nil)
		wait := store.held.actionOf(owner)
		require.Zero(t, time.Since(wait.since))
		require.Equal(t, map[want]wanted{{resource: pods}: {since: behind.At, asked: behind.At}}, wait.wanted)
		end()
		synctest.Wait()
	})
}

// lateProof proves what it is asked for after two seconds.
type lateProof struct{ *verdicts }

func (lateProof) Prove(context.Context, schema.GroupResource, time.Time) freshness.Proof {
	time.Sleep(2 * time.Second)
	return fresh
}

// After a write that failed the queue's backoff brings an object back, and what waits for it does so only a second after that was due, unless the write was
// tried again and made, or the controller takes no notice. An object for which nothing was written keeps its backoff. That another write was made, as an autoscaler's status, is known
// of the writes of owners.
func TestAFailedWriteLeavesTheObjectToTheBackoff(t *testing.T) {
	const (
		key    = "ns/quota"
		proven = firstPause + statusRetry/2 // after what verdicts wait, and before a second after the queue's backoff
	)
	owner, scale := types.NamespacedName{Namespace: "ns", Name: "quota"}, transport.Write{Method: http.MethodPut, Subresource: "scale"}
	wrote := func(ctx context.Context, s *Store, what transport.Write, failed bool) { // as the transport tells
		if consistency.Wrote(ctx, failed); failed {
			s.Failed(owner, what)
		} else {
			s.Recorded(owner, what)
		}
	}
	status := transport.Write{Method: http.MethodPut, Subresource: "status"}
	for name, test := range map[string]struct {
		do             func(ctx context.Context, store *Store)
		woken, forgets bool
	}{
		"nothing is written":        {do: func(context.Context, *Store) {}, woken: true},
		"written":                   {do: func(ctx context.Context, _ *Store) { consistency.Wrote(ctx, false) }, woken: true, forgets: true},
		"failed":                    {do: func(ctx context.Context, _ *Store) { consistency.Wrote(ctx, true) }},
		"failed, tried again, made": {do: func(ctx context.Context, _ *Store) { consistency.Wrote(ctx, true); consistency.Wrote(ctx, false) }, woken: true, forgets: true},
		"failed, another made":      {do: func(ctx context.Context, s *Store) { wrote(ctx, s, scale, true); wrote(ctx, s, status, false) }, forgets: true},
		"failed, tried again, made, another made": {do: func(ctx context.Context, s *Store) {
			wrote(ctx, s, scale, true)
			wrote(ctx, s, scale, false)
			wrote(ctx, s, status, false)
		}, woken: true, forgets: true},
		"failed, read again": {do: func(ctx context.Context, s *Store) { consistency.Wrote(ctx, true); s.Reading(key) }, woken: true, forgets: true},
		"failed, unnoticed": {do: func(ctx context.Context, s *Store) {
			consistency.Wrote(ctx, true)
			time.Sleep(proven)
			consistency.Forget(s, key, func(string) {})
		}, woken: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}})
				ctx := consistency.WithReading(t.Context(), store, key)
				require.Error(t, consistency.ProvePass(ctx, "pods", pods))
				test.do(ctx, store)
				time.Sleep(proven)
				synctest.Wait()
				require.Equal(t, test.woken, len(queue) == 1)
				time.Sleep(statusRetry)
				synctest.Wait()
				require.Len(t, queue, 1)
				forgotten := false
				consistency.Forget(store, key, func(string) { forgotten = true })
				require.Equal(t, test.forgets, forgotten)
			})
		})
	}
}

// What a queue has given up, after as many failures in a row, no value that waits brings back, but for one that waits since. Other queues do not give up.
func TestAValueBringsBackNothingThatItsQueueHasGivenUp(t *testing.T) {
	for controller, comes := range map[string]bool{serviceCIDRStore: false, endpointStore: false, "resourcequota": true} {
		t.Run(controller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const key = "object"
				store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}})
				store.name = controller
				waits := func() context.Context {
					ctx := consistency.WithReading(t.Context(), store, key)
					require.Error(t, consistency.ProvePass(ctx, "", pods))
					return ctx
				}
				for range givenUpAfter {
					consistency.Wrote(waits(), true)
				}
				time.Sleep(time.Hour)
				require.Equal(t, comes, len(queue) > 0)
				for len(queue) > 0 {
					<-queue
					store.Reading(key) // The value is not wanted.
				}
				time.Sleep(2 * sameWait)
				waits()
				time.Sleep(time.Hour)
				require.Len(t, queue, 1)
			})
		})
	}
}

// After a write that failed a value pauses until the queue's backoff or an event has the object read. A reading that a value has caused ends no pause.
func TestAReadingThatNoValueCausedEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "ns/quota"
		owner := types.NamespacedName{Name: ownerOf(key, "pods")}
		store, _ := readingStore(t.Context(), &verdicts{})
		read := func() {
			time.Sleep(time.Millisecond)
			store.Reading(key)
		}
		fails := func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.fails(key)
		}
		pauses := func() bool { return store.pauses(owner, &putOff{}) > 0 }
		require.False(t, pauses(), "nothing has failed")
		for range 10 {
			fails()
			read()
		}
		require.True(t, pauses(), "the reading may fail, too")
		time.Sleep(firstPause)
		require.False(t, pauses(), "read by the queue")
		store.wakeAction(owner)
		read()
		store.wakeAction(owner) // Another value, while the object is tried.
		fails()
		read()
		time.Sleep(firstPause)
		require.True(t, pauses(), "read for a value")
		read()
		require.True(t, pauses(), "the reading may fail, too")
		time.Sleep(firstPause)
		require.False(t, pauses(), "read by the queue")
		fails()
		require.True(t, pauses(), "failed again")
		time.Sleep(time.Minute)
		require.False(t, pauses(), "the backoff is over")
		for range 20 {
			read()
			fails()
		}
		time.Sleep(longestPause)
		require.True(t, pauses(), "the queue has the longest delay, and brings it back now: it may fail")
		time.Sleep(firstPause)
		require.False(t, pauses(), "the backoff is over")
	})
}

// A value that pauses as a write of its object has failed says so, proven or not.
func TestAValueThatPausesSaysWhy(t *testing.T) {
	for _, proven := range []bool{true, false} {
		t.Run(fmt.Sprintf("proven %t", proven), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const key = "ns/quota"
				owner := types.NamespacedName{Name: ownerOf(key, "pods")}
				store, _ := readingStore(t.Context(), &verdicts{})
				for range 12 {
					store.Reading(key)
					store.mu.Lock()
					store.fails(key)
					store.mu.Unlock()
				}
				store.await(t.Context(), owner, &putOff{hold: hold{resource: pods, proof: down}}, func() bool { return proven })
				synctest.Wait()
				waits := store.held.actionOf(owner)
				require.NotNil(t, waits)
				var why string
				store.held.change(func() { why = waits.why(waits.proof) })
				require.Equal(t, "the last try failed; the pause between tries grows", why)
				time.Sleep(time.Minute)
				require.Nil(t, store.held.actionOf(owner), "the backoff is over")
			})
		})
	}
}

// An object whose writes fail, and that an event had read while all that it would write waits, comes back 16 s after its next failure, and each further time
// after twice as long; after another such event after 16 s again, also while it would be minutes. That the queue brings it back, or this does, is no such event.
func TestAnObjectThatWasSparedATryComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), "quota", nil)
		store.ctx = t.Context()
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		const key = "ns/quota"
		fails := func() {
			consistency.Wrote(consistency.WithReading(t.Context(), store, key), true)
		}
		spare := func() {
			store.Reading(key).(*reading).waits(types.NamespacedName{Name: key}, true)
			require.True(t, store.Undecided(key))
		}
		comesBackAfter := func(want time.Duration) {
			t.Helper()
			time.Sleep(want - time.Millisecond)
			require.Empty(t, queue)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Len(t, queue, 1)
			<-queue
		}
		fails()
		time.Sleep(time.Hour)
		require.Empty(t, queue, "the queue's backoff brings it back")
		for range 12 {
			spare() // The queue has brought it back.
			store.failed[key].woken = true
			fails()
			time.Sleep(time.Hour)
			require.Empty(t, queue)
		}
		fails()
		spare()
		for tries := range 6 {
			store.failed[key].woken = true
			fails()
			comesBackAfter(sparedRetry << tries)
			spare()
		}
		fails() // It would be a quarter of an hour.
		time.Sleep(time.Minute)
		spare()
		fails()
		comesBackAfter(sparedRetry)
		time.Sleep(time.Hour)
		require.Empty(t, queue)
	})
}
