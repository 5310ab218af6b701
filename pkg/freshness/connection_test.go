// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// balancer passes each connection on to one of several apiservers, and never looks at it again.
type balancer struct {
	servers []*pipeListener
	choose  func(dial int) int

	mu    sync.Mutex
	dials []time.Time
}

func (b *balancer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	b.mu.Lock()
	b.dials = append(b.dials, time.Now())
	n := b.choose(len(slices.Compact(slices.Clone(b.dials))) - 1)
	b.mu.Unlock()
	return b.servers[n].dial(ctx, network, address)
}

// dialed are the times of the dials. Requests that are sent at once each dial, until one connection turns out to be for all.
func (b *balancer) dialed() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Compact(slices.Clone(b.dials))
}

// inBalanced runs a test of a prover whose apiservers are behind a balancer and speak HTTP/2, so that requests that hang take up no connection.
func inBalanced(t *testing.T, choose func(dial int) int, servers []*fakeAPI, test func(t *testing.T, p *Prover, b *balancer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &balancer{choose: choose}
		for _, api := range servers {
			l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
			server := httptest.Server{Listener: l, Config: &http.Server{Handler: api}, EnableHTTP2: true}
			server.StartTLS()
			t.Cleanup(server.Close)
			b.servers = append(b.servers, l)
		}
		p := newProver(t, Options{Config: &rest.Config{Host: "https://balancer", Dial: b.dial, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}})
		defer p.Close() // Before the servers, which wait for their requests.
		test(t, p, b)
	})
}

// asked are the resources of which fences are taken in turn, as the monitor does.
var asked = []schema.GroupVersionResource{leases, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "secrets"}}

// askFor takes a fence of each resource every second until one succeeds, or the time is over.
func askFor(t *testing.T, p *Prover, most time.Duration, of ...schema.GroupVersionResource) (succeeded bool) {
	var ok atomic.Bool
	for began := time.Now(); time.Since(began) < most && !ok.Load(); time.Sleep(time.Second) {
		for _, gvr := range of {
			go func() {
				if _, err := p.Fence(t.Context(), gvr); err == nil {
					ok.Store(true)
				}
			}()
		}
	}
	return ok.Load()
}

// One of two apiservers behind a balancer is cut off from etcd, or rejects all that it is asked. The connection to it lives, and its probes are
// answered.
func TestAConnectionThatAnswersNothingIsLeft(t *testing.T) {
	for name, broken := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"it hangs": func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		},
		"it answers 500": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "etcdserver: no leader", http.StatusInternalServerError)
			return true
		},
		"it rejects by priority and fairness": inLevel("workload-high", func(w http.ResponseWriter, _ *http.Request) bool {
			rejected(w, 1)
			return true
		}),
	} {
		t.Run(name, func(t *testing.T) {
			servers := []*fakeAPI{{rv: 100}, {rv: 100}}
			inBalanced(t, func(dial int) int { return min(dial, 1) }, servers, func(t *testing.T, p *Prover, b *balancer) {
				_, err := p.Fence(t.Context(), leases)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				servers[0].mu.Lock()
				servers[0].answer = broken
				servers[0].mu.Unlock()
				require.True(t, askFor(t, p, 20*time.Second, asked...), "the other apiserver is well")
				require.Len(t, b.dialed(), 2)
			})
		})
	}
}

// What another apiserver would answer as well, what fails beside requests that succeed, and what other servers behind kube-apiserver do not answer, is no
// reason to leave.
func TestAConnectionThatAnswersIsKept(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", code)
			return true
		}
	}
	only := func(broken func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { return broken(r) && status(500)(w, r) }
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		of     []schema.GroupVersionResource
	}{
		"401":                     {status(http.StatusUnauthorized), asked},
		"403":                     {status(http.StatusForbidden), asked},
		"404":                     {status(http.StatusNotFound), asked},
		"only one succeeds":       {only(func(r *http.Request) bool { return r.URL.Path != "/api/v1/pods" }), asked},
		"nothing but definitions": {status(500), []schema.GroupVersionResource{custom(1), custom(2), custom(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			inBalanced(t, func(int) int { return 0 }, []*fakeAPI{{rv: 100, answer: c.answer}}, func(t *testing.T, p *Prover, b *balancer) {
				for range 60 {
					askFor(t, p, time.Second, c.of...)
				}
				require.Len(t, b.dialed(), 1)
			})
		})
	}
}

// While no apiserver answers, as in an overload of all, there is a new connection once in a while, and more and more rarely. Once one has answered, the next
// outage is met as the first.
func TestAConnectionIsLeftMoreAndMoreRarely(t *testing.T) {
	api := &fakeAPI{rv: 100}
	fail := func(broken bool) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			if broken {
				http.Error(w, "etcdserver: no leader", http.StatusInternalServerError)
			}
			return broken
		}
	}
	inBalanced(t, func(int) int { return 0 }, []*fakeAPI{api}, func(t *testing.T, p *Prover, b *balancer) {
		for range 2 {
			fail(true)
			before := len(b.dialed())
			require.False(t, askFor(t, p, time.Minute, asked...))
			soon := len(b.dialed())
			require.GreaterOrEqual(t, soon-before, 3)
			require.LessOrEqual(t, soon-before, 5)
			require.False(t, askFor(t, p, 6*maxLeaveEvery, asked...))
			require.GreaterOrEqual(t, len(b.dialed())-soon, 4)
			require.LessOrEqual(t, len(b.dialed())-soon, 7)
			fail(false)
			require.True(t, askFor(t, p, time.Minute, asked...))
			time.Sleep(2 * maxLeaveEvery)
		}
	})
}

// Requests that hang end long after their connection was left.
func TestWhatTheConnectionBeforeHasLostDoesNotCount(t *testing.T) {
	var c connection
	sent := time.Now()
	lost := func(request uint64, after time.Duration) bool {
		return c.failed(request, 4, sent, sent.Add(after), time.Time{})
	}
	require.False(t, lost(1, 10*time.Second))
	require.True(t, lost(2, 10*time.Second))
	require.False(t, lost(3, 20*time.Second))
	require.False(t, lost(4, 20*time.Second))
	require.False(t, lost(5, 20*time.Second))
	require.True(t, lost(6, 20*time.Second))
}

// As that of a resource with webhooks may be, while others are answered.
func TestRequestsThatTakeLongDoNotCountBesideOthersThatSucceed(t *testing.T) {
	var c connection
	sent := time.Now()
	for range 10 {
		require.False(t, c.failed(1, 2, sent, sent.Add(10*time.Second), sent.Add(9*time.Second)))
	}
}

// A slow apiserver may still answer what is under way when its connection is left.
func TestRequestsUnderWayOutliveTheirConnection(t *testing.T) {
	slow := &fakeAPI{rv: 100}
	inBalanced(t, func(dial int) int { return min(dial, 1) }, []*fakeAPI{slow, {rv: 100}}, func(t *testing.T, p *Prover, b *balancer) {
		answer := make(chan struct{})
		slow.answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/apis/coordination.k8s.io/v1/leases" {
				<-answer
				return false
			}
			http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
			return true
		}
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err = p.Fence(t.Context(), leases)
		}()
		synctest.Wait()
		require.True(t, askFor(t, p, 8*time.Second, asked[1:]...))
		require.Len(t, b.dialed(), 2)
		close(answer)
		<-done
		require.NoError(t, err)
	})
}
