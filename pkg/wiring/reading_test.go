// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// verdicts proves each resource as it is told to. Who waits is let go after a second.
type verdicts struct {
	of map[schema.GroupResource]freshness.Proof

	mu    sync.Mutex
	asked []schema.GroupResource
}

func (v *verdicts) prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, resource)
	return v.of[resource]
}

func (*verdicts) known(schema.GroupResource) (freshness.Proof, bool) { return freshness.Proof{}, false }

func (*verdicts) wrote(schema.GroupResource, string, time.Time) {}

func (*verdicts) wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(retryUnproven)
}

// readingStore follows both caches, and has the queue.
func readingStore(ctx context.Context, p prover) (*Store, chan string) {
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
		require.Empty(t, store.refused)
	})
}

// No value waits for ever, however it is with its cache.
func TestAValueIsHeldForALimitedTime(t *testing.T) {
	for name, test := range map[string]struct {
		proof freshness.Proof
		first bool
		want  time.Duration
	}{
		"unknown":                  {proof: down, want: heldUnknown},
		"stale":                    {proof: stale, want: heldStale},
		"no value yet":             {proof: stale, first: true, want: heldFirst},
		"nothing can ever be told": {proof: absent, want: goOnAfter},
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
				}
				require.InDelta(t, test.want.Seconds(), time.Since(began).Seconds(), 2)
				time.Sleep(2 * retryUnproven)
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

func (slowCache) wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(retryUnproven)
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

// Without the monitor, too, a cache that is followed can be proven. It costs nothing before.
func TestAFollowedCacheCanBeProven(t *testing.T) {
	server := &lists{rv: "50", node: "40"}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	w, err := New(t.Context(), &restclient.Config{Host: listener.URL}, mapper, nil)
	require.NoError(t, err)
	nodeCache := cache.NewStore(cache.MetaNamespaceKeyFunc)
	require.NoError(t, nodeCache.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "40"}}}, "50"))
	store := w.Store("test", nil)
	consistency.Follow(store, nodes, nodeCache)
	ctx := consistency.WithReading(t.Context(), store, "ns/quota")
	require.Zero(t, server.requests)
	_, known := w.proofs.prover.Lookup(nodes)
	require.False(t, known)
	require.Eventually(t, func() bool {
		return consistency.ProvePass(consistency.WithReading(ctx, store, "ns/quota"), "count/nodes", nodes) == nil
	}, wait, tick)
	_, known = w.proofs.prover.Lookup(nodes)
	require.True(t, known, "it was not let go for want of a proof")
	server.mu.Lock()
	defer server.mu.Unlock()
	require.LessOrEqual(t, server.requests, 2)
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
		require.Len(t, store.refused, 2, "those of the other quota")
		prover.of[pods], prover.of[nodes] = fresh, fresh
		ctx := consistency.WithReading(t.Context(), store, "ns/stays")
		require.NoError(t, consistency.ProvePass(ctx, "pods", pods))
		require.NoError(t, consistency.ProvePass(ctx, "count/nodes", nodes))
		require.Empty(t, store.waiting)
		require.Empty(t, store.refused)
	})
}
