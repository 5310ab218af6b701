// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// busyServer deletes a pod, and until it heals answers that it is too busy, or that it failed.
type busyServer struct {
	heals      time.Time
	code       int
	retryAfter string
	requests   int
	deleted    time.Time // zero: it is there
}

func (s *busyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests++
	code, body := http.StatusOK, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-x","namespace":"ns","uid":"x","resourceVersion":"5"}}`
	header := http.Header{"Content-Type": {"application/json"}}
	if time.Now().Before(s.heals) {
		code, body = s.code, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy"}`
		header.Set("Retry-After", s.retryAfter)
	} else {
		s.deleted = time.Now()
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// client-go sends a deletion again after an answer with Retry-After, beneath the controller, whatever has changed meanwhile. Ours is decided again, no later and with no more requests.
func TestADeletionThatTheServerPutsOffIsDecidedAgain(t *testing.T) {
	metrics.Register()
	const busy = http.StatusTooManyRequests
	for name, tc := range map[string]struct {
		code        int
		retryAfter  string
		outage      time.Duration
		wanted      time.Duration // until when the pod is to be deleted
		stock, ours bool          // it is deleted
	}{
		"wanted":                       {code: busy, retryAfter: "5", outage: time.Second, wanted: time.Hour, stock: true, ours: true},
		"wanted, at once":              {code: busy, retryAfter: "0", outage: time.Millisecond, wanted: time.Hour, stock: true, ours: true},
		"wanted, refused for a minute": {code: busy, retryAfter: "1", outage: time.Minute, wanted: time.Hour, stock: true, ours: true},
		"wanted, refused for long":     {code: busy, retryAfter: "30", outage: 10 * time.Minute, wanted: time.Hour, stock: true, ours: true},
		"not any more":                 {code: busy, retryAfter: "5", outage: time.Second, wanted: 3 * time.Second, stock: true},
		"not any more, after a minute": {code: busy, retryAfter: "7", outage: time.Minute, wanted: time.Minute, stock: true},
		"failed, and not any more":     {code: http.StatusServiceUnavailable, retryAfter: "5", outage: time.Second, wanted: 3 * time.Second, stock: true},
		"refused, not put off":         {code: http.StatusConflict, retryAfter: "30", outage: time.Second, wanted: time.Hour, stock: true, ours: true},
		"failed":                       {code: http.StatusServiceUnavailable, retryAfter: "5", outage: time.Second, wanted: time.Hour, stock: true, ours: true},
	} {
		t.Run(name, func(t *testing.T) {
			servers := map[bool]*busyServer{}
			var took [2]time.Duration
			for i, ours := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					server := &busyServer{heals: began.Add(tc.outage), code: tc.code, retryAfter: tc.retryAfter}
					servers[ours] = server
					reconciles(t, server, ours, tc.outage+20*time.Minute, func(ctx context.Context, pods typedcorev1.PodInterface) error {
						if !server.deleted.IsZero() || time.Since(began) >= tc.wanted {
							return nil
						}
						return pods.Delete(ctx, "web-x", metav1.DeleteOptions{})
					})
					took[i] = server.deleted.Sub(began)
				})
			}
			require.Equal(t, tc.stock, !servers[false].deleted.IsZero(), "stock")
			require.Equal(t, tc.ours, !servers[true].deleted.IsZero(), "ours")
			require.LessOrEqual(t, servers[true].requests, servers[false].requests, "never more attempts than upstream")
			if tc.ours {
				require.LessOrEqual(t, took[1], took[0]+10*time.Millisecond, "nor later")
			}
			t.Logf("stock: %d attempts; ours: %d attempts", servers[false].requests, servers[true].requests)
		})
	}
}

// The owner comes back once, when the longest time is over for which the server has asked to wait, and is not reconciled before, whatever events come. The page says so.
func TestAnOwnerWaitsAsTheServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, queue := readingStore(t.Context(), &verdicts{})
		owner, deletes := types.NamespacedName{Namespace: "ns", Name: "web"}, transport.Write{Method: http.MethodDelete, Resource: pods}
		for _, after := range []time.Duration{3 * time.Second, 5 * time.Second, 2 * time.Second} { // Several that it has refused together.
			store.Failed(owner, deletes)
			store.RetryAfter(owner, deletes, after)
		}
		time.Sleep(4 * time.Second)
		require.ErrorContains(t, store.EnsureReady(owner), "the server asks to wait for another 1s")
		rows := rowsOf(store.Waits)
		require.Len(t, rows, 1)
		require.Equal(t, "its next try, to delete pods", rows[0].For)
		require.Contains(t, rows[0].Why, "the server asks to wait")
		require.Empty(t, queue)
		time.Sleep(time.Minute)
		require.Equal(t, "ns/web", <-queue)
		require.Empty(t, queue)
		require.Empty(t, rowsOf(store.Waits))
		require.NoError(t, store.EnsureReady(owner))

		store.Failed(owner, deletes)
		store.RetryAfter(owner, deletes, 30*24*time.Hour)
		store.Clear(owner, "") // It is gone.
		require.NoError(t, store.EnsureReady(owner))
		time.Sleep(longestPause)
		require.Empty(t, queue)
	})
}

// What a controller has half done it goes on with, and what it reads from the server, or waits for only briefly, is left to client-go.
func TestWhatIsDecidedAgain(t *testing.T) {
	store, _ := readingStore(t.Context(), &verdicts{})
	for _, c := range []struct {
		controller, method, resource, subresource string
		want                                      bool
	}{
		{"replicaset", http.MethodDelete, "pods", "", true},
		{"replicaset", http.MethodPost, "pods", "", false},
		{"replicaset", http.MethodPut, "replicasets", "status", false}, // Nothing else is put off.
		{deploymentStore, http.MethodPut, "replicasets", "", true},
		{deploymentStore, http.MethodPut, "deployments", "", false},
		{deploymentStore, http.MethodPut, "deployments", "status", false},
		{deploymentStore, http.MethodDelete, "replicasets", "", true},
		{jobStore, http.MethodPatch, "pods", "", true},
		{jobStore, http.MethodDelete, "pods", "", false}, // It has no finalizer any more.
		{autoscaler, http.MethodPut, "deployments", "scale", false},
	} {
		store.name = c.controller
		what := transport.Write{Method: c.method, Resource: schema.GroupResource{Resource: c.resource}, Subresource: c.subresource}
		require.Equal(t, c.want, store.Redecides(what, types.NamespacedName{}), "%s: %+v", c.controller, what)
	}
	store.name, store.brief = cronJob, true
	require.False(t, store.Redecides(transport.Write{Method: http.MethodDelete, Resource: schema.GroupResource{Resource: "jobs"}}, types.NamespacedName{}))
}
