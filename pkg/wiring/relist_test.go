// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
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

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

var (
	pods  = schema.GroupResource{Resource: "pods"}
	nodes = schema.GroupResource{Resource: "nodes"}
)

// newWiring is one of the server, in a bubble. The context ends with the test.
func newWiring(t *testing.T, server http.RoundTripper, known meta.RESTMapper) (context.Context, *Wiring) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	w, err := New(ctx, &restclient.Config{Host: "http://server", Transport: server}, known, transport.NewWatches(), nil)
	require.NoError(t, err)
	return ctx, w
}

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

// RoundTrip implements http.RoundTripper: it answers without a connection, for the time of a bubble.
func (l *lists) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = l.rv
	if strings.HasSuffix(req.URL.Path, "/nodes") {
		list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: l.node}}}
	}
	body, err := json.Marshal(list)
	return &http.Response{StatusCode: http.StatusOK, Request: req, ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

func (l *lists) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// A restore of etcd with bumped revisions: nothing goes backward, and each cache is relisted on its own.
func TestRelistsAreWaitedForUntilAllCachesAreOfOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &lists{rv: "50", node: "40"}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		_, w := newWiring(t, server, mapper)
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
		if store.EnsureReady(owner) != nil {
			require.Equal(t, "ns/owner", <-queue, "the start of leadership")
		}
		require.NoError(t, store.EnsureReady(owner))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, queue)

		server.set("1000", "40")
		list(podCache, "1000")
		require.True(t, consistency.Parked(store.EnsureReady(owner)), "pods of one time, nodes of another")
		time.Sleep(time.Second)
		synctest.Wait()
		var waits []rvtracker.Wait
		w.stores[0].(*consistencystore.Store).EachWaiting(func(time.Time) bool { return true }, func(w rvtracker.Wait) { waits = append(waits, w) })
		require.Len(t, waits, 1)
		require.Equal(t, nodes, waits[0].Resource)
		require.Equal(t, "relist", waits[0].Reason())
		require.True(t, waits[0].ProvenStale)
		require.Contains(t, waitsOf(w)[0].For, "a proof that it is as new as another cache")
		require.LessOrEqual(t, server.asked(), 2, "the cache is waited for, not asked again and again")
		require.Empty(t, queue)

		list(nodeCache, "1001", node("40"))
		require.Equal(t, "ns/owner", <-queue)
		require.NoError(t, store.EnsureReady(owner))
	})
}

// Without the monitor, too, a cache that is followed can be proven. It costs nothing before.
func TestAFollowedCacheCanBeProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &lists{rv: "50", node: "40"}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		ctx, w := newWiring(t, server, mapper)
		nodeCache := cache.NewStore(cache.MetaNamespaceKeyFunc)
		require.NoError(t, nodeCache.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "40"}}}, "50"))
		store := w.Store("test", nil)
		consistency.Follow(store, nodes, nodeCache)
		reading := func() context.Context { return consistency.WithReading(ctx, store, "ns/quota") }
		reading()
		synctest.Wait()
		require.Zero(t, server.asked())
		_, known := w.proofs.prover.Lookup(nodes)
		require.False(t, known)
		if consistency.ProvePass(reading(), "count/nodes", nodes) != nil {
			time.Sleep(time.Second)
			require.NoError(t, consistency.ProvePass(reading(), "count/nodes", nodes))
		}
		_, known = w.proofs.prover.Lookup(nodes)
		require.True(t, known, "it was not let go for want of a proof")
		require.LessOrEqual(t, server.asked(), 2)
	})
}
