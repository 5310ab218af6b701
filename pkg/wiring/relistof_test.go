// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// podLists is a server with a list of pods, and nothing else.
type podLists struct{ lists atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (s *podLists) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/pods") || req.URL.Query().Get("watch") != "true" {
		return &http.Response{StatusCode: http.StatusInternalServerError, Request: req, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}, nil
	}
	body, w := io.Pipe()
	context.AfterFunc(req.Context(), func() { _ = w.Close() })
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		s.lists.Add(1)
		go func() {
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}()
	}
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1}, nil
}

// After a rewind each of many caches waits for its list for an hour. The others are relisted once, with and without the monitor.
func TestCachesThatWaitForTheirListsHaveNoOthersRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, watches := &podLists{}, transport.NewWatches()
		config := &restclient.Config{Host: "http://server", Transport: server}
		ctx, cancel := context.WithCancel(t.Context())
		w, err := New(ctx, config, meta.NewDefaultRESTMapper(nil), watches, nil)
		require.NoError(t, err)
		factory := informers.NewSharedInformerFactory(watches.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}).ClientOrDie("shared-informers"), 0)
		factory.Core().V1().Pods().Informer()
		factory.Start(ctx.Done())
		defer func() {
			cancel()
			factory.Shutdown()
		}()
		for i := range 15 {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			require.NoError(t, store.Replace(nil, "100"))
			w.tracker.Register(schema.GroupResource{Resource: fmt.Sprint("things", i)}, store)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, server.lists.Load())
		nodeCache := cache.NewStore(cache.MetaNamespaceKeyFunc)
		require.NoError(t, nodeCache.Replace(nil, "100"))
		source := w.tracker.Register(nodes, nodeCache)
		_, err = source.ObserveFence(source.BeginFence(), "62")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, server.lists.Load())
	})
}
