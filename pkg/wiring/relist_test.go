// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

const wait, tick = 10 * time.Second, time.Millisecond

var (
	pods  = schema.GroupResource{Resource: "pods"}
	nodes = schema.GroupResource{Resource: "nodes"}
)

func waitsOf(w *Wiring) []stalenessz.Wait {
	var out stalenessz.Longest
	w.Waits(&out)
	return out.Rows()
}

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
	w, err := New(t.Context(), &restclient.Config{Host: listener.URL}, mapper, transport.NewWatches(), nil)
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
		w.stores[0].(*consistencystore.Store).EachWaiting(func(time.Time) bool { return true }, func(w rvtracker.Wait) { waits = append(waits, w) })
		return len(waits) == 1 && waits[0].Resource == nodes && waits[0].Reason() == "relist" && waits[0].ProvenStale
	}, wait, tick)
	require.Contains(t, waitsOf(w)[0].For, "a proof that it is as new as another cache")
	server.mu.Lock()
	require.LessOrEqual(t, server.requests, 2, "the cache is waited for, not asked again and again")
	server.mu.Unlock()

	list(nodeCache, "1001", node("40"))
	require.Equal(t, "ns/owner", <-queue)
	require.NoError(t, store.EnsureReady(owner))
}

// Without the monitor, too, a cache that is followed can be proven. It costs nothing before.
func TestAFollowedCacheCanBeProven(t *testing.T) {
	server := &lists{rv: "50", node: "40"}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	w, err := New(t.Context(), &restclient.Config{Host: listener.URL}, mapper, transport.NewWatches(), nil)
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
