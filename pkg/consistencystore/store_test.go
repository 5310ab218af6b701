// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

const waitTime, tick = 10 * time.Second, time.Millisecond

var pods = schema.GroupResource{Resource: "pods"}

// provide makes a controller's store as patched upstream does, on a tracker that runs.
func provide(t *testing.T, informer cache.Store) consistency.ConsistencyStore {
	t.Helper()
	tracker := rvtracker.New(rvtracker.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tracker.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	consistency.SetProvider(func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		return newStore(tracker, controller, stores)
	})
	t.Cleanup(func() { consistency.SetProvider(nil) })
	return consistency.New("test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: informer})
}

//conformance:kep-5647 Staleness Mitigation in Controllers: it is queued again with backoff
func TestParkedOwnerComesBackToTheQueue(t *testing.T) {
	informer := cache.NewStore(cache.MetaNamespaceKeyFunc)
	store := provide(t, informer)
	queue := make(chan string, 1)
	consistency.OnReady(store, func(key string) { queue <- key })
	require.NoError(t, informer.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}))

	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	require.NoError(t, store.EnsureReady(owner))
	store.WroteAt(owner, "uid", pods, "8")
	require.Eventually(t, func() bool { return consistency.Parked(store.EnsureReady(owner)) }, waitTime, tick, "the tracker has to be running")
	require.NoError(t, store.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "other"}), "other owners go on")

	require.NoError(t, informer.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "8"}}))
	require.Equal(t, "ns/owner", <-queue)
	require.NoError(t, store.EnsureReady(owner))
}

func TestProvidedStoresReplaceUpstreams(t *testing.T) {
	require.IsType(t, &consistency.RealConsistencyStore{}, consistency.New("test", nil))
	require.IsType(t, &consistency.NoopConsistencyStore{}, consistency.NewIfProvided("test", nil))
	informer := cache.NewStore(cache.MetaNamespaceKeyFunc)
	require.Implements(t, (*transport.Store)(nil), provide(t, informer))
	require.Implements(t, (*transport.Store)(nil), consistency.NewIfProvided("test", nil))
}

func TestQueueKeys(t *testing.T) {
	require.Equal(t, "ns/name", key(types.NamespacedName{Namespace: "ns", Name: "name"}))
	require.Equal(t, "name", key(types.NamespacedName{Name: "name"}))
}

func TestExpectationsStandForWhatIsNotTracked(t *testing.T) {
	store := provide(t, cache.NewStore(cache.MetaNamespaceKeyFunc))
	owner, other := types.NamespacedName{Namespace: "ns", Name: "owner"}, types.NamespacedName{Namespace: "ns", Name: "other"}
	require.True(t, consistency.SeenOwnWrites(store, owner))
	store.WroteAt(owner, "uid", pods, "opaque")
	require.False(t, consistency.SeenOwnWrites(store, owner), "nothing waits for that write")
	require.True(t, consistency.SeenOwnWrites(store, other))
	store.Clear(owner, "uid of an earlier owner")
	require.False(t, consistency.SeenOwnWrites(store, owner), "the present owner's write is still not waited for")
	store.Clear(owner, "uid")
	require.True(t, consistency.SeenOwnWrites(store, owner))
	require.False(t, consistency.SeenOwnWrites(consistency.NewConsistencyStore(nil), owner), "upstream's stores miss deletions")
}
