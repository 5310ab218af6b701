// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// decider asks for one decision about a pod, and notes what it was asked itself.
type decider struct {
	cached, live bool
	err          error
	reads        int
}

func (d *decider) decide(ctx context.Context, store *Store, key string) bool {
	return consistency.Decide(consistency.WithReading(ctx, store, key), consistency.Decision{
		Action: "pods/a/uid", Resource: pods, Cached: func() bool { return d.cached },
		Read: func(context.Context) (bool, error) { d.reads++; return d.live, d.err },
	})
}

// The cache decides if it is proven, else the server, and it may do so against the cache.
func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		proof freshness.Proof
		decider
		want  bool
		reads int
		waits bool
	}{
		"proven":                        {proof: fresh, decider: decider{cached: true}, want: true},
		"proven, and wrong":             {proof: fresh},
		"stale, and right":              {proof: stale, decider: decider{live: true}, want: true, reads: 1, waits: true},
		"stale, and wrong":              {proof: stale, decider: decider{cached: true}, reads: 1, waits: true},
		"stale, the server is down":     {proof: stale, decider: decider{cached: true, err: errors.New("down")}, reads: 1, waits: true},
		"not known yet, so nobody asks": {proof: down, decider: decider{cached: true, live: true}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: test.proof}})
				store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
				require.Equal(t, test.want, test.decide(t.Context(), store, "claim:ns/c"))
				require.Equal(t, test.reads, test.decider.reads)
				waits := store.held.actionOf(types.NamespacedName{Name: ownerOf("claim:ns/c", "pods/a/uid")})
				require.Equal(t, test.waits, waits != nil)
				if test.waits && !test.want {
					require.Equal(t, "claim:ns/c", <-queue)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Empty(t, queue)
				require.Equal(t, test.waits && !test.want, len(store.putOffs) > 0, "nothing is kept of what was decided")
				require.Equal(t, test.waits && !test.want, len(store.waiting) > 0)
			})
		})
	}
}

// Nothing is kept of what a live read has decided that took longer than the wait.
func TestADecisionByASlowReadLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}})
		store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		require.True(t, consistency.Decide(consistency.WithReading(t.Context(), store, "claim:ns/c"), consistency.Decision{
			Action: "pods/a/uid", Resource: pods, Cached: func() bool { return true },
			Read: func(context.Context) (bool, error) { time.Sleep(2 * time.Second); return true, nil },
		}))
		require.Equal(t, "claim:ns/c", <-queue)
		require.Empty(t, store.putOffs)
		require.Empty(t, store.waiting)
	})
}

// What a live read has decided comes back once more if it has to be decided again while the first wait lasts, and cannot be then.
func TestWhatIsDecidedAgainWhileItWaitsComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}})
		store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		d := &decider{live: true}
		require.True(t, d.decide(t.Context(), store, "claim:ns/c"))
		d.err = errors.New("down")
		require.False(t, d.decide(t.Context(), store, "claim:ns/c"), "its write was refused")
		require.Equal(t, "claim:ns/c", <-queue)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, queue)
	})
}

// What a live read refutes is not read again until the cache has moved, and is decided once it is proven. Of the rest as much is
// read as there is budget for, so that nothing waits without limit.
func TestLiveReadsOfDecisionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const claims = 100
		prover := &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}}
		store, _ := readingStore(t.Context(), prover)
		queue := make(chan string, 10*claims)
		store.OnReady(func(key string) { queue <- key })
		reached := version("5")
		store.Follow(pods, &reached)
		store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		d, open := map[string]*decider{}, map[string]bool{}
		for i := range claims { // The one that is refuted comes first, while there is budget.
			key := fmt.Sprintf("claim:ns/%d", i)
			d[key], open[key] = &decider{cached: true, live: i > 0}, true
			queue <- key
		}
		began := time.Now()
		reads := func() (n int) {
			for _, one := range d {
				n += one.reads
			}
			return n
		}
		for len(open) > 1 {
			key := <-queue
			if open[key] && d[key].decide(t.Context(), store, key) {
				delete(open, key)
			}
			allowed := livereads.DefaultBurst + int(time.Since(began).Seconds()*float64(livereads.DefaultRate)) + 1
			require.LessOrEqual(t, reads(), allowed)
		}
		require.Contains(t, open, "claim:ns/0")
		require.InDelta(t, claims-livereads.DefaultBurst, time.Since(began).Seconds(), 10)
		refuted := d["claim:ns/0"]
		require.Equal(t, 1, refuted.reads, "the cache has not moved")

		reached = "6"
		time.Sleep(10 * time.Second)
		require.False(t, refuted.decide(t.Context(), store, "claim:ns/0"))
		require.Equal(t, 2, refuted.reads)
		prover.of[pods] = freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "6"}
		require.True(t, refuted.decide(t.Context(), store, "claim:ns/0"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
}

// That a pod has another's name says nothing unless the cache has all that was there when the claim was read.
func TestADecisionMayAskForACacheOfNow(t *testing.T) {
	for _, now := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			asked := &askedOf{}
			store := passStore(t.Context(), asked, nil)
			store.OnReady(func(string) {})
			reached := version("5")
			store.Follow(pods, &reached)
			time.Sleep(time.Minute)
			began := time.Now()
			ctx := consistency.WithReading(t.Context(), store, "claim:ns/c")
			time.Sleep(10 * time.Millisecond)
			require.True(t, consistency.Decide(ctx, consistency.Decision{Resource: pods, Now: now, Cached: func() bool { return true }}))
			if now {
				require.Equal(t, began, asked.asOf)
			} else {
				require.Equal(t, began.Add(-ProofAge), asked.asOf)
			}
		})
	}
}

// askedOf proves everything, and notes as of when.
type askedOf struct {
	verdicts
	asOf time.Time
}

func (a *askedOf) Prove(_ context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	a.asOf = asOf
	return fresh
}

// A proof that came after the reading is good for the next one only if it is no older than the first.
func TestACacheOfNowIsProvenAheadOfTheNextReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &busyCache{takes: 30 * time.Millisecond}
		store := passStore(t.Context(), cache, nil)
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		store.Follow(pods, cache)
		decision := consistency.Decision{Action: "pods/a/uid", Resource: pods, Now: true, Cached: func() bool { return true }}
		require.False(t, consistency.Decide(consistency.WithReading(t.Context(), store, "claim:ns/c"), decision))
		require.Equal(t, "claim:ns/c", <-queue)
		require.True(t, consistency.Decide(consistency.WithReading(t.Context(), store, "claim:ns/c"), decision))
		require.Empty(t, store.ahead)
	})
}

// Of many objects that wait for one slow proof most queue for longer than a proof counts as new. Proofs serve all that are due within as long
// as they take; else each object would wait for a proof of its own, 5 min in all.
func TestManyThatWaitForOneProofMayQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const claims, work = 100, 50 * time.Millisecond
		server := &slowServer{takes: 3 * time.Second}
		store, _ := readingStore(t.Context(), server)
		store.Follow(pods, server)
		queue := make(chan string, claims)
		store.OnReady(func(key string) { queue <- key })
		for i := range claims {
			queue <- fmt.Sprintf("claim:ns/%d", i)
		}
		began := time.Now()
		for done := 0; done < claims; {
			time.Sleep(work)
			if consistency.Decide(consistency.WithReading(t.Context(), store, <-queue), consistency.Decision{
				Action: "pods/a/uid", Resource: pods, Cached: func() bool { return true },
			}) {
				done++
			}
		}
		took := time.Since(began)
		require.LessOrEqual(t, took, claims*server.takes/5)
		require.LessOrEqual(t, int(server.fences.Load()), int(took/ProofAge))
		require.Empty(t, store.putOffs)
		require.Empty(t, store.waiting)
	})
}
