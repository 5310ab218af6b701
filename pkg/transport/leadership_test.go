// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// heldLease is a lease that is renewed by setting a time.
type heldLease struct{ renewed time.Time }

func (l *heldLease) Renewed() time.Time { return l.renewed }

// sent notes the requests that reach the wire.
type sent []string

func (s *sent) RoundTrip(req *http.Request) (*http.Response, error) {
	*s = append(*s, req.Method+" "+req.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, wire := &heldLease{renewed: time.Now()}, &sent{}
		transport := leaderOnly{wire, "", Lease{lease, 15 * time.Second}}
		try := func(method, path string) error {
			req, err := http.NewRequestWithContext(t.Context(), method, "https://server"+path, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(req)
			return err
		}
		const pods, events = "/api/v1/namespaces/ns/pods", "/apis/events.k8s.io/v1/namespaces/ns/events"
		time.Sleep(15*time.Second - time.Millisecond)
		require.NoError(t, try("POST", pods))
		time.Sleep(time.Millisecond)
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			var refused *NotLeaderError
			require.ErrorAs(t, try(method, pods+"/a"), &refused)
			require.EqualError(t, refused, method+" "+pods+"/a was not sent: the leader lease was renewed 15s ago and lasts 15s, so another process may lead by now")
		}
		require.NoError(t, try("GET", pods))
		require.NoError(t, try("POST", events))
		lease.renewed = time.Now()
		require.NoError(t, try("DELETE", pods+"/a"))
		lease.renewed = time.Time{}
		require.Error(t, try("POST", pods), "given up")
		require.Equal(t, sent{"POST " + pods, "GET " + pods, "POST " + events, "DELETE " + pods + "/a"}, *wire)
	})
}

// slow is a wire on which a request takes a while, unless it is taken back.
type slow struct {
	by      time.Duration
	arrived *bool
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.by):
		*s.arrived = true
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// A request that has been sent while the lease held reaches the server whenever it likes: it is neither taken back nor refused when the lease runs out.
func TestWhatWasSentBeforeTheLeaseRanOutIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &heldLease{renewed: time.Now()}
		arrived := false
		wire := slow{time.Minute, &arrived} // The process is paused meanwhile, or the network.
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://server/api/v1/namespaces/ns/pods/a", nil)
		require.NoError(t, err)
		_, err = leaderOnly{wire, "", Lease{lease, 15 * time.Second}}.RoundTrip(req)
		require.NoError(t, err)
		require.True(t, arrived)
		require.Greater(t, sinceRenewal(lease.renewed, time.Now()), 15*time.Second)
	})
}

// A machine's sleep counts in the wall clock only.
func TestTheLeaseRunsOutByEitherClock(t *testing.T) {
	renewed := time.Now()
	require.Equal(t, time.Minute, sinceRenewal(renewed, renewed.Round(0).Add(time.Minute)))
	require.Equal(t, time.Minute, sinceRenewal(renewed, renewed.Add(time.Minute)))
}

func TestClientsOfALeaderThatLostItsLease(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"5"}}`))
	}))
	defer server.Close()
	builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}}
	lease := &heldLease{}
	for name, tc := range map[string]struct {
		lease *Lease
		sent  int32
	}{
		"run out":            {&Lease{lease, time.Second}, 0},
		"no leader election": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			client := Clients(builder, tc.lease).ClientOrDie("test")
			_, err := client.CoreV1().Pods("ns").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
			require.Equal(t, tc.sent, requests.Load())
			if tc.sent == 0 {
				var refused *NotLeaderError
				require.ErrorAs(t, err, &refused)
			} else {
				require.NoError(t, err)
			}
		})
	}
}
