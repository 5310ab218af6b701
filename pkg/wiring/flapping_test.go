// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"

	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// hangingServer answers one request in two, and leaves the others without an answer until they are given up.
type hangingServer struct{ asked, hanging atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (s *hangingServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.asked.Add(1)%2 == 0 {
		s.hanging.Add(1)
		defer s.hanging.Add(-1)
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`
	return &http.Response{StatusCode: http.StatusOK, Request: req, ContentLength: -1, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(list))}, nil
}

// filledStore is an informer's store that stands still.
type filledStore struct{ cache.Store }

func (*filledStore) LastStoreSyncResourceVersion() string { return "5" }

// filledInformer is one whose resource is followed while somebody uses the other.
type filledInformer struct{ store *filledStore }

func (i filledInformer) GetStore() cache.Store         { return i.store }
func (filledInformer) LastSyncResourceVersion() string { return "5" }

// Definitions come, go and flap, while half of the requests about them hang: every goroutine ends that was started for them.
func TestNoGoroutineIsLeftOfDefinitionsThatAreGone(t *testing.T) {
	const definitions, flaps = 300, 3
	const requestTimeout = 10 * time.Second // A request is shared, and not given up with those who asked for it.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := &hangingServer{}
		w, err := New(ctx, &rest.Config{Host: "http://server", Transport: server}, meta.NewDefaultRESTMapper(nil), transport.NewWatches(), nil)
		require.NoError(t, err)
		handlers := sharedinformers.NewHandlers()
		typed := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
		factory := handlers.ObserveFactory(informerfactory.NewInformerFactory(typed,
			metadatainformer.NewSharedInformerFactory(metadatafake.NewSimpleMetadataClient(metadataScheme(t)), 0)))
		filled := map[schema.GroupVersionResource]filledInformer{}
		for i := range definitions {
			gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("things", i)}
			filled[gvr] = filledInformer{&filledStore{cache.NewStore(cache.MetaNamespaceKeyFunc)}}
		}
		inUse := sharedinformers.Informers(ctx, typed, factory, meta.NewDefaultRESTMapper(nil))
		w.Monitor(func() map[schema.GroupVersionResource]stalenessmonitor.Informer {
			used := inUse()
			for gvr := range used {
				used[gvr] = filled[gvr]
			}
			return used
		}, handlers)
		time.Sleep(time.Minute)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range flaps {
			ended := make(chan struct{})
			for gvr := range filled {
				for range 2 { // The garbage collector and quota.
					informer, err := factory.ForResource(gvr)
					require.NoError(t, err)
					go informer.Informer().GetController().Run(ended)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, w.Caches(), definitions)
			require.Positive(t, server.hanging.Load(), "requests are under way")
			require.Greater(t, runtime.NumGoroutine(), before+2*definitions)
			close(ended)
			time.Sleep(stalenessmonitor.Period + requestTimeout + time.Second)
			synctest.Wait()
			require.Empty(t, w.Caches())
			require.Zero(t, server.hanging.Load())
			// Those of other tests of the process come and go; of what is left behind there are as many as definitions.
			require.Less(t, runtime.NumGoroutine(), before+definitions/10)
		}
		require.Greater(t, server.asked.Load(), int64(50*flaps), "there were requests")
		for gvr := range filled {
			_, known := w.proofs.prover.Lookup(gvr.GroupResource())
			require.False(t, known)
		}
	})
}
