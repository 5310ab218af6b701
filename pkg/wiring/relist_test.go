// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// lists is a server of metadata lists: no pods, and one node.
type lists struct {
	mu       sync.Mutex
	rv, node string
	requests int
}

func (l *lists) set(rv, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rv, l.node, l.requests = rv, node, 0
}

func (l *lists) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = l.rv
	if strings.HasSuffix(req.URL.Path, "/nodes") {
		list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: l.node}}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// A restore of etcd with bumped revisions: nothing goes backward, and each cache is relisted on its own.
func TestRelistsAreWaitedForUntilAllCachesAreOfOneTime(t *testing.T) {
	server := &lists{rv: "50", node: "40"}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	w, err := New(t.Context(), &restclient.Config{Host: listener.URL}, mapper, nil)
	require.NoError(t, err)
	podCache, nodeCache := cache.NewStore(cache.MetaNamespaceKeyFunc), cache.NewStore(cache.MetaNamespaceKeyFunc)
	store := w.Store("test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: podCache, nodes: nodeCache})
	queue := make(chan string, 9)
	consistency.OnReady(store, func(key string) { queue <- key })
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	list := func(store cache.Store, rv string, objects ...any) { require.NoError(t, store.Replace(objects, rv)) }
	node := func(rv string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: rv}}
	}

	list(podCache, "50")
	list(nodeCache, "50", node("45")) // A label that the restore takes away.
	server.set("50", "45")
	require.Eventually(t, func() bool { return store.EnsureReady(owner) == nil }, wait, tick, "the start of leadership")
	for len(queue) > 0 {
		<-queue
	}

	server.set("1000", "40")
	list(podCache, "1000")
	require.True(t, consistency.Parked(store.EnsureReady(owner)), "pods of one time, nodes of another")
	require.Eventually(t, func() bool {
		var waits []rvtracker.Wait
		w.tracker.EachWaiting(func(time.Time) bool { return true }, func(w rvtracker.Wait) { waits = append(waits, w) })
		return len(waits) == 1 && waits[0].Resource == nodes && waits[0].Why == rvtracker.WhyUnproven && waits[0].ProvenStale
	}, wait, tick)
	require.Contains(t, waitsOf(w)[0].For, "a proof that it is as new as another cache")
	server.mu.Lock()
	require.LessOrEqual(t, server.requests, 2, "the cache is waited for, not asked again and again")
	server.mu.Unlock()

	list(nodeCache, "1001", node("40"))
	require.Equal(t, "ns/owner", <-queue)
	require.NoError(t, store.EnsureReady(owner))
}

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
		store := NewStore(tracker, "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: podCache, nodes: nodeCache})
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
		require.Equal(t, nodes, rowsOf(store.waits)[0].Resource, "the page says what for")

		prover.answer(fresh)
		close(prover.release)
		require.Equal(t, "ns/owner", <-queue)
		require.NoError(t, consistency.ProveFresh(consistency.WithOwner(ctx, store, owner, "uid"), store, pods))
		cancel()
		running.Wait()
	})
}
