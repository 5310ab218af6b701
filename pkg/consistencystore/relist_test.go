// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// noProofs never proves the nodes.
type noProofs struct{}

func (noProofs) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) (func(context.Context), error) {
	if resource != nodes {
		return nil, nil
	}
	return func(context.Context) { time.Sleep(time.Second) }, errors.New("500")
}

// One resource cannot be listed, and another is relisted: creations go on after a while, deletions do not.
func TestRepairGoesOnWithoutTheProofOfARelist(t *testing.T) {
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		tracker := rvtracker.New(rvtracker.Options{Prover: noProofs{}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { tracker.Run(ctx) })
		podCache, nodeCache := cache.NewStore(cache.MetaNamespaceKeyFunc), cache.NewStore(cache.MetaNamespaceKeyFunc)
		store := newStore(tracker, "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: podCache, nodes: nodeCache})
		prover := &script{nodes: down, release: make(chan struct{})}
		store.ctx, store.prover = ctx, prover
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		synctest.Wait()
		require.NoError(t, nodeCache.Replace(nil, "5"))
		require.NoError(t, podCache.Replace(nil, "4"))
		require.NoError(t, podCache.Replace(nil, "5"))

		require.True(t, consistency.Parked(store.EnsureReady(owner)))
		require.Equal(t, "ns/owner", <-queue)
		require.NoError(t, store.EnsureReady(owner))
		err := consistency.ProveFresh(consistency.WithOwner(ctx, store, owner, "uid"), store, pods)
		require.True(t, consistency.Parked(err), "a deletion that depends on pods alone needs the nodes, too, as they may be of another time")
		require.Equal(t, nodes, rowsOf(store.Waits)[0].Resource, "the page says what for")

		prover.answer(fresh)
		close(prover.release)
		require.Equal(t, "ns/owner", <-queue)
		require.NoError(t, consistency.ProveFresh(consistency.WithOwner(ctx, store, owner, "uid"), store, pods))
		cancel()
		running.Wait()
	})
}
