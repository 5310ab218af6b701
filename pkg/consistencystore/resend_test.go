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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// flakyServer creates pods, and until it heals answers that it could not.
type flakyServer struct {
	heals      time.Time
	carriesOut bool   // what it says to have failed
	retryAfter string // empty: no such header
	posts      int
	created    []time.Time
}

func (s *flakyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.posts++
	healthy := !time.Now().Before(s.heals)
	if healthy || s.carriesOut {
		s.created = append(s.created, time.Now())
	}
	code, body := http.StatusCreated, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-x","namespace":"ns","uid":"x","resourceVersion":"5"}}`
	header := http.Header{"Content-Type": {"application/json"}}
	if !healthy {
		code, body = http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServerTimeout","code":500}`
		if s.retryAfter != "" {
			header.Set("Retry-After", s.retryAfter)
		}
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// reconciles has a controller do its work with a client of the server, its queue, and a cache that is never behind. The arm is stock upstream or ours.
func reconciles(t *testing.T, server http.RoundTripper, ours bool, lasts time.Duration, work func(ctx context.Context, pods typedcorev1.PodInterface) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	owner := types.NamespacedName{Namespace: "ns", Name: "web"}
	var builder clientbuilder.ControllerClientBuilder = clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: "http://server", Transport: server, QPS: -1}}
	var store consistency.ConsistencyStore = consistency.NewNoopConsistencyStore()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if ours {
		builder = transport.Clients(builder, nil)
		reached := version("9")
		s := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
		prover := &lateProver{}
		prover.set(time.Now().Add(24*time.Hour), false)
		s.ctx, s.prover, store = ctx, prover, s
		s.OnReady(queue.Add)
	}
	client := builder.ClientOrDie("test")
	reconcile := func() error {
		if err := store.EnsureReady(owner); err != nil {
			return err
		}
		return work(consistency.WithOwner(ctx, store, owner, "uid"), client.CoreV1().Pods("ns"))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			key, quit := queue.Get()
			if quit {
				return
			}
			switch err := reconcile(); {
			case consistency.Parked(err):
			case err != nil:
				queue.AddRateLimited(key)
			default:
				queue.Forget(key)
			}
			queue.Done(key)
		}
	}()
	queue.Add("ns/web")
	time.Sleep(lasts)
	cancel()
	queue.ShutDown()
	<-done
	synctest.Wait()
}

// client-go sends a POST again after a server error with Retry-After, beneath the controller: what the server has
// carried out all the same is then made twice.
func TestACreationIsNotSentAgainUnseen(t *testing.T) {
	metrics.Register()
	generated, named := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}
	for name, tc := range map[string]struct {
		pod         *corev1.Pod
		carriesOut  bool
		retryAfter  string
		outage      time.Duration
		stock, ours int // pods
	}{
		"carried out":                      {pod: generated, carriesOut: true, retryAfter: "1", outage: time.Second, stock: 2, ours: 1},
		"carried out, at once":             {pod: generated, carriesOut: true, retryAfter: "0", outage: time.Millisecond, ours: 1},
		"carried out, not to be retried":   {pod: generated, carriesOut: true, outage: time.Second, stock: 1, ours: 1},
		"carried out, has a name":          {pod: named, carriesOut: true, retryAfter: "1", outage: time.Second, stock: 2, ours: 2},
		"refused":                          {pod: generated, retryAfter: "1", outage: time.Second, stock: 1, ours: 1},
		"refused for a minute":             {pod: generated, retryAfter: "1", outage: time.Minute, stock: 1, ours: 1},
		"refused for ten minutes":          {pod: generated, retryAfter: "1", outage: 10 * time.Minute, stock: 1, ours: 1},
		"refused for minutes, and patient": {pod: generated, retryAfter: "30", outage: 10 * time.Minute, stock: 1, ours: 1},
	} {
		t.Run(name, func(t *testing.T) {
			arms := map[bool]*flakyServer{}
			var took [2]time.Duration
			for i, ours := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					server := &flakyServer{heals: began.Add(tc.outage), carriesOut: tc.carriesOut, retryAfter: tc.retryAfter}
					arms[ours] = server
					reconciles(t, server, ours, tc.outage+20*time.Minute, func(ctx context.Context, pods typedcorev1.PodInterface) error {
						if len(server.created) > 0 {
							return nil
						}
						_, err := pods.Create(ctx, tc.pod, metav1.CreateOptions{})
						return err
					})
					require.NotEmpty(t, server.created)
					took[i] = server.created[0].Sub(began)
				})
			}
			if tc.stock > 0 {
				require.Len(t, arms[false].created, tc.stock, "stock")
			}
			require.Len(t, arms[true].created, tc.ours, "ours")
			require.LessOrEqual(t, arms[true].posts, arms[false].posts+1, "never more attempts than upstream")
			require.LessOrEqual(t, took[1], took[0]+time.Second, "nor later")
			t.Logf("stock: %d attempts, %s; ours: %d attempts, %s", arms[false].posts, took[0], arms[true].posts, took[1])
		})
	}
}
