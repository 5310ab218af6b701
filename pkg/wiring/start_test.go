// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// slowServer has one object of each resource, and takes that long for each read.
type slowServer struct {
	takes time.Duration
	asked atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	// A timer that is due at once is run by whoever waits for it, in a bubble under one context of the race detector, which ends the
	// process if two do so at a time.
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},
		"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}]}`
	return &http.Response{StatusCode: http.StatusOK, Request: req, ContentLength: -1, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(list))}, nil
}

// A cache that is registered later is about to be proven, or not needed: a fence would be one request more.
func TestNoFenceIsSentOnceThereWasAFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{}
		known := meta.NewDefaultRESTMapper(nil)
		known.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		ctx, w := newWiring(t, server, known)
		cached := cache.NewStore(cache.MetaNamespaceKeyFunc)
		require.NoError(t, cached.Replace(nil, "7"))
		require.NoError(t, w.Register(ctx, nodes, cached))
		require.True(t, w.Registered(nodes))
		synctest.Wait()
		require.Zero(t, server.asked.Load())
	})
}

// Behind a member of etcd that lags each consistent read takes seconds. Stock starts its informers all the same; so do we, half a second
// later. What is proven does not change: only a first list that has passed the fence is as new as the start of leadership.
//
//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
func TestAStartWaitsForAllFencesAtOnce(t *testing.T) {
	const most = 500 * time.Millisecond
	kinds := []string{"ConfigMap", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod",
		"PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"}
	known := meta.NewDefaultRESTMapper(nil)
	resources := make([]schema.GroupResource, 0, len(kinds))
	for _, kind := range kinds {
		gvk := corev1.SchemeGroupVersion.WithKind(kind)
		known.Add(gvk, meta.RESTScopeNamespace)
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		resources = append(resources, gvr.GroupResource())
	}
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	for name, c := range map[string]struct {
		takes, starts time.Duration
		first         string // what the first lists bring
		ready         bool
		requests      int // for each cache that is proven
	}{
		"at once":                              {0, 0, "7", true, 1},
		"soon":                                 {100 * time.Millisecond, 100 * time.Millisecond, "7", true, 1},
		"late: a small cache is listed, too":   {3 * time.Second, most, "7", true, 2},
		"late, and the first lists are older":  {3 * time.Second, most, "6", false, 0},
		"never":                                {time.Hour, most, "7", false, 0},
		"soon, from an apiserver that is late": {100 * time.Millisecond, 100 * time.Millisecond, "6", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &slowServer{takes: c.takes}
				ctx, w := newWiring(t, server, known)
				starting := w.StartInformers(informers.NewSharedInformerFactory(fake.NewClientset(), 0), known, func(string) bool { return true })
				began := time.Now()
				stores := map[consistency.ConsistencyStore]cache.Store{}
				for _, resource := range resources {
					cached := cache.NewStore(cache.MetaNamespaceKeyFunc)
					stores[w.Store(resource.Resource, map[schema.GroupResource]consistency.LastSyncRVGetter{resource: cached})] = cached
					require.True(t, w.Registered(resource))
				}
				require.Zero(t, time.Since(began), "controllers are built without an answer")
				starting.Start(ctx.Done())
				require.Equal(t, c.starts, time.Since(began))
				require.EqualValues(t, len(kinds), server.asked.Load(), "all are sent at once, each once")

				for _, cached := range stores {
					object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: c.first}}
					require.NoError(t, cached.Replace([]any{object}, c.first))
				}
				time.Sleep(4 * time.Second)
				for store := range stores {
					require.Equal(t, c.ready, store.EnsureReady(owner) == nil)
				}
				if c.ready {
					require.EqualValues(t, c.requests*len(kinds), server.asked.Load())
				}
			})
		})
	}
}
