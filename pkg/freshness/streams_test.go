// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// Requests that hang take up no connection: beyond the streams that a server takes on one, there is another.
func TestStreamsOfOneConnection(t *testing.T) {
	api := &fakeAPI{rv: 100}
	var hanging sync.WaitGroup
	hanging.Add(5)
	api.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if isCustom(r) {
			hanging.Done()
			<-r.Context().Done()
		}
		return isCustom(r)
	}
	var mu sync.Mutex
	connections := map[string]int{}
	api.arrived = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		connections[r.RemoteAddr]++
		if r.ProtoMajor != 2 {
			t.Errorf("it came by %s", r.Proto)
		}
	}
	srv := httptest.NewUnstartedServer(api)
	srv.EnableHTTP2 = true
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2}
	srv.StartTLS()
	defer srv.Close()
	p := newProver(t, Options{Config: &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}})

	_, err := p.Fence(t.Context(), leases)
	require.NoError(t, err)
	var all sync.WaitGroup
	for n := range 5 {
		all.Go(func() { p.Fence(t.Context(), custom(n)) })
	}
	hanging.Wait()
	_, err = p.Fence(t.Context(), leases)
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(t, len(connections), 3)
	p.Close()
	all.Wait()
}
