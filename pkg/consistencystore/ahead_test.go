// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// busyCache is a cache that moves a hundred times a second and is never behind, and the prover of it: a fence takes
// a while, and one that is young enough is shared.
type busyCache struct {
	turn   chan struct{} // unless nil, no more prove than it has room for
	takes  time.Duration
	fences []time.Time
}

func (b *busyCache) LastStoreSyncResourceVersion() string {
	return strconv.FormatInt(time.Now().UnixMilli()/10, 10)
}

func (b *busyCache) Prove(_ context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	if b.turn != nil {
		b.turn <- struct{}{}
		defer func() { <-b.turn }()
	}
	if n := len(b.fences); n == 0 || b.fences[n-1].Before(asOf) {
		b.fences = append(b.fences, time.Now())
		time.Sleep(b.takes)
	}
	at := b.fences[len(b.fences)-1]
	return freshness.Proof{Outcome: freshness.Proven, At: at, ResourceVersion: strconv.FormatInt(at.Add(b.takes).UnixMilli()/10, 10)}
}

func (*busyCache) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{}, false
}

func (*busyCache) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (*busyCache) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	panic("it is never behind")
}

// A deletion that needs a busy cache proven goes on, however long the queue and the server take.
func TestADeletionIsNotRefusedWithoutEnd(t *testing.T) {
	for _, queued := range []time.Duration{0, time.Second, 2100 * time.Millisecond, 30 * time.Second} {
		for _, takes := range []time.Duration{5 * time.Millisecond, time.Second, 5 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
				cache := &busyCache{takes: takes, turn: make(chan struct{}, 1)}
				store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: cache, pods: cache})
				store.ctx, store.prover = t.Context(), cache
				queue := make(chan string, 9)
				store.OnReady(func(key string) { queue <- key })
				queue <- key(owner)
				for tries := 1; ; tries++ {
					require.LessOrEqual(t, tries, 2, "queued for %s, a fence takes %s", queued, takes)
					<-queue
					time.Sleep(queued)
					require.NoError(t, store.EnsureReady(owner))
					ctx := consistency.WithOwner(t.Context(), store, owner, "uid")
					err := consistency.ProveFresh(ctx, store, nodes, pods)
					if err == nil {
						break
					}
					require.True(t, consistency.Parked(err))
				}
				require.Empty(t, store.ahead, "nothing is kept")
				require.LessOrEqual(t, len(cache.fences), 4)
			})
		}
	}
}

// busyCaches has a prover for each.
type busyCaches map[schema.GroupResource]*busyCache

func (b busyCaches) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	return b[resource].Prove(ctx, resource, asOf)
}

func (busyCaches) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{}, false
}

func (busyCaches) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (busyCaches) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	panic("they are never behind")
}

// A reconcile that was refused leaves its status to the next one, but not twice in a row. One that is refused because
// of another cache than the last does not forget that.
func TestARefusalIsNotForAnotherReadingTwiceInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		prover := busyCaches{nodes: {takes: 10 * time.Millisecond}, pods: {takes: 10 * time.Millisecond}}
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: prover[nodes], pods: prover[pods]})
		store.ctx, store.prover = t.Context(), prover
		var again []bool
		for try, resources := range [][]schema.GroupResource{{nodes}, {pods}, {nodes, pods}} {
			time.Sleep(time.Minute)
			require.NoError(t, store.EnsureReady(owner))
			err := consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, resources...)
			require.Equal(t, try < 2, err != nil)
			again = append(again, consistency.Again(err))
		}
		require.Equal(t, []bool{true, false, false}, again)
	})
}

// What is proven ahead is good for one reconcile.
func TestProofsAheadAreForOneReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		cache := &busyCache{takes: 10 * time.Millisecond}
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: cache})
		store.ctx, store.prover = t.Context(), cache
		require.Error(t, consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, nodes))
		time.Sleep(time.Minute)
		require.NoError(t, store.EnsureReady(owner))
		require.Len(t, cache.fences, 2)
		time.Sleep(time.Minute)
		require.NoError(t, store.EnsureReady(owner), "the reconcile before had nothing to delete")
		require.Len(t, cache.fences, 2)
		require.Error(t, consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, nodes), "it is a minute old")
		store.Clear(owner, "uid")
		require.Empty(t, store.ahead)
	})
}
