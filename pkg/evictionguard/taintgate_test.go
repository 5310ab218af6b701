// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// slowServer serves the pods and nodes of a test by HTTP, each request after a while.
type slowServer struct {
	e       *evictions
	latency time.Duration
	conns   chan net.Conn
	closed  chan struct{}

	mu       sync.Mutex
	requests map[string]int // by method and resource
	deleted  []time.Duration
	start    time.Time
	// fail, if set, answers a request in place of the server.
	fail func(w http.ResponseWriter, r *http.Request) bool
}

func (s *slowServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *slowServer) Close() error { return nil }

func (s *slowServer) Addr() net.Addr { return &net.TCPAddr{} }

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	name := path[len(path)-1]
	if name == "status" {
		name = path[len(path)-2]
	}
	resource := path[0]
	if resource == "namespaces" {
		resource = path[2]
	}
	s.mu.Lock()
	s.requests[r.Method+" "+resource]++
	fail := s.fail
	s.mu.Unlock()
	wait := func() {
		select {
		case <-time.After(s.latency / 2):
		case <-s.closed:
		}
	}
	wait()
	if fail != nil && fail(w, r) {
		wait()
		return
	}
	tracker := s.e.client.Tracker()
	var answer any = &metav1.Status{Status: metav1.StatusSuccess}
	switch resource {
	case "events":
		answer = &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "event"}}
	case "nodes":
		answer = s.read(func() (any, error) { return tracker.Get(nodeGVR, "", name) })
	case "pods":
		answer = s.read(func() (any, error) { return tracker.Get(podGVR, "ns", name) })
		pod, ok := answer.(*corev1.Pod)
		if r.Method == http.MethodDelete && ok {
			s.mu.Lock()
			s.deleted = append(s.deleted, time.Since(s.start))
			s.mu.Unlock()
			if tracker.Delete(podGVR, "ns", name) == nil {
				s.e.pods.send(watch.Deleted, pod)
			}
		}
	}
	wait()
	w.Header().Set("Content-Type", "application/json")
	if status, ok := answer.(*metav1.Status); ok && status.Code != 0 {
		w.WriteHeader(int(status.Code))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *slowServer) read(get func() (any, error)) any {
	obj, err := get()
	if err != nil {
		return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	return obj
}

// client is what the controllers of kube-controller-manager have by default.
func (s *slowServer) client(transport http.RoundTripper) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://server", QPS: 20, Burst: 30, Transport: transport})
}

// dial is the server's transport with connections.
func (s *slowServer) dial() *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		s.conns <- there
		return here, nil
	}}
}

// RoundTrip is the same without connections, for many requests.
func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	if trace != nil && trace.GetConn != nil {
		trace.GetConn("server")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return w.Result(), nil
}

// runSlowEvictions is runEvictions with a server that takes a while for each request.
func runSlowEvictions(t *testing.T, guarded, connections bool, latency time.Duration, f func(e *evictions, s *slowServer)) {
	s := &slowServer{latency: latency, requests: map[string]int{}}
	server := http.Server{Handler: s}
	runEvictionsWith(t, guarded, func(e *evictions) kubernetes.Interface {
		s.e, s.closed = e, make(chan struct{})
		if !connections {
			return s.client(s)
		}
		s.conns = make(chan net.Conn)
		go func() { _ = server.Serve(s) }()
		transport := s.dial()
		e.t.Cleanup(transport.CloseIdleConnections)
		return s.client(transport)
	}, func(e *evictions) {
		s.start = time.Now()
		f(e, s)
		close(s.closed)
		// The broadcaster does not end before it has sent its events.
		time.Sleep(5 * time.Minute)
		_ = server.Close()
	})
}

// wave is how a wave of evictions that were due together went.
type wave struct {
	deleted  []time.Duration
	requests map[string]int
}

func (w wave) last() time.Duration { return w.deleted[len(w.deleted)-1] }

func (w wave) total() (n int) {
	for _, r := range w.requests {
		n += r
	}
	return n
}

// evictWave evicts pods that are all due at once; prepare, if any, sets up the server.
func evictWave(t *testing.T, guarded bool, latency, proof time.Duration, pods int, prepare func(s *slowServer)) (w wave) {
	runSlowEvictions(t, guarded, false, latency, func(e *evictions, s *slowServer) {
		e.proof = proof
		e.taint()
		for i := range pods {
			e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), 0)
		}
		if prepare != nil {
			prepare(s)
		}
		s.start = time.Now()
		e.taint(noExec("a"))
		for range 200 {
			if e.after(5*time.Second) == 0 {
				break
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		w = wave{deleted: s.deleted, requests: maps.Clone(s.requests)}
	})
	require.Len(t, w.deleted, pods)
	return w
}

// TestEvictionsAreNoSlowerThanUpstream, whatever time a request takes, and cost no more requests. If proofs
// take as long, an eviction takes at most three of them: when it is due, and before each of its two writes.
func TestEvictionsAreNoSlowerThanUpstream(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	const pods, maxChecks = 200, livereads.DefaultBurst
	for name, tc := range map[string]struct{ latency, proof, bound time.Duration }{
		"0.1 s":                   {latency: 100 * time.Millisecond, bound: time.Second},
		"1 s":                     {latency: time.Second, bound: time.Second},
		"5 s":                     {latency: 5 * time.Second, bound: time.Second},
		"5 s, and proofs as long": {latency: 5 * time.Second, proof: 5 * time.Second, bound: 16 * time.Second},
		"15 s":                    {latency: 15 * time.Second, bound: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			stock, guarded := evictWave(t, false, tc.latency, 0, pods, nil), evictWave(t, true, tc.latency, tc.proof, pods, nil)
			t.Logf("stock: first %s, half %s, last %s, %v", stock.deleted[0], stock.deleted[pods/2], stock.last(), stock.requests)
			t.Logf("guarded: first %s, half %s, last %s, %v", guarded.deleted[0], guarded.deleted[pods/2], guarded.last(), guarded.requests)
			require.LessOrEqual(t, guarded.last(), stock.last()+tc.bound)
			require.LessOrEqual(t, guarded.total(), stock.total()+maxChecks)
		})
	}
}

// TestEvictionsWithRetryAfterDelayNoOthers: the server has client-go try some of them again later.
func TestEvictionsWithRetryAfterDelayNoOthers(t *testing.T) {
	const pods = 150
	soon := map[bool]int{} // that are evicted while others have a Retry-After
	for _, guarded := range []bool{false, true} {
		w := evictWave(t, guarded, 100*time.Millisecond, 0, pods, func(s *slowServer) {
			from := time.Now()
			s.fail = func(w http.ResponseWriter, r *http.Request) bool {
				busy := strings.Contains(r.URL.Path, "/pods/pod1") && time.Since(from) < 2*time.Minute
				if busy {
					w.Header().Set("Retry-After", "30")
					w.WriteHeader(http.StatusTooManyRequests)
				}
				return busy
			}
		})
		for _, at := range w.deleted {
			if at < 30*time.Second {
				soon[guarded]++
			}
		}
	}
	require.Equal(t, 89, soon[false], "stock")
	require.Equal(t, soon[false], soon[true])
}

// TestGateSeesConnections: a real transport says where a request is, as the gate needs to know.
func TestGateSeesConnections(t *testing.T) {
	const pods = 100
	deleted := map[bool]time.Duration{}
	for _, guarded := range []bool{false, true} {
		runSlowEvictions(t, guarded, true, 5*time.Second, func(e *evictions, s *slowServer) {
			e.taint()
			for i := range pods {
				e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), 0)
			}
			s.start = time.Now()
			e.taint(noExec("a"))
			require.Zero(t, e.after(2*time.Minute))
			s.mu.Lock()
			defer s.mu.Unlock()
			deleted[guarded] = s.deleted[pods-1]
		})
	}
	t.Log(deleted)
	require.LessOrEqual(t, deleted[true], deleted[false]+time.Second)
}

// TestEachTryIsDecidedAgain: writes fail for a minute, the taint goes, and the watch does not show it.
func TestEachTryIsDecidedAgain(t *testing.T) {
	for guarded, left := range map[bool]int{false: 0, true: 1} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			runSlowEvictions(t, guarded, false, 8*time.Second, func(e *evictions, s *slowServer) {
				e.taint()
				e.pod("pod", "uid", 0)
				s.fail = func(w http.ResponseWriter, r *http.Request) bool {
					fails := r.Method == http.MethodPatch && time.Since(s.start) < 40*time.Second
					if fails {
						w.WriteHeader(http.StatusInternalServerError)
					}
					return fails
				}
				s.start = time.Now()
				e.taint(noExec("a"))
				require.Equal(t, 1, e.after(12*time.Second))
				e.nodes.hold()
				e.taint()
				require.Equal(t, left, e.after(5*time.Minute))
			})
		})
	}
}

// TestEvictionIsDecidedAgainIfTheNodeChanged: while an eviction is put off because the node has a taint that
// is tolerated for longer, another comes. Upstream evicts when the first taint is due.
func TestEvictionIsDecidedAgainIfTheNodeChanged(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			runSlowEvictions(t, guarded, false, 3*time.Second, func(e *evictions, s *slowServer) {
				e.taint()
				tolerate := func(key string, seconds int64) corev1.Toleration {
					return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}
				}
				e.pod("pod", "uid", 0, tolerate("first", 10), tolerate("longer", 3600), tolerate("second", 5))
				e.taint(noExec("first"))
				e.nodes.hold()
				time.Sleep(9 * time.Second)
				e.taint(noExec("longer"))
				time.Sleep(3500 * time.Millisecond) // the read of the node is under way, and has its answer
				e.taint(noExec("longer"), noExec("second"))
				e.nodes.skip()
				e.nodes.release()
				require.Zero(t, e.after(30*time.Second))
			})
		})
	}
}

// TestLiveReadsAreSentOnce, each for one token of the budget.
func TestLiveReadsAreSentOnce(t *testing.T) {
	runSlowEvictions(t, true, false, time.Second, func(e *evictions, s *slowServer) {
		s.fail = func(w http.ResponseWriter, r *http.Request) bool {
			busy := strings.Contains(r.URL.Path, "/nodes/")
			if busy {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return busy
		}
		e.taint()
		e.pod("pod", "uid", 0)
		e.taint(noExec("a"))
		e.nodes.hold()
		e.taint(noExec("a"), noExec("b"))
		require.Equal(t, 1, e.after(4*time.Second), "nothing is known")
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, 1, s.requests["GET nodes"])
	})
}

// refusedEvictions is how things went with pods that the server does not let go, and five others on a node that was
// tainted later.
type refusedEvictions struct {
	last     time.Duration  // from the taint to the last deletion of the five
	requests int            // but for events
	events   map[string]int // by pod
	waiting  int            // evictions, as the metric has it
	left     int            // of them when the taint was gone
}

func evictBesideRefused(t *testing.T, guarded bool, code, refused int, after time.Duration) (out refusedEvictions) {
	out.events = map[string]int{}
	runSlowEvictions(t, guarded, false, 100*time.Millisecond, func(e *evictions, s *slowServer) {
		s.fail = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.HasSuffix(r.URL.Path, "/events"):
				event := &corev1.Event{}
				require.NoError(t, json.NewDecoder(r.Body).Decode(event))
				if strings.HasPrefix(event.Message, "Marking for deletion") {
					s.mu.Lock()
					out.events[event.InvolvedObject.Name]++
					s.mu.Unlock()
				}
			case strings.Contains(r.URL.Path, "/events/"):
				s.mu.Lock()
				out.events["again"]++
				s.mu.Unlock()
			case r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/pods/refused"):
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code)})
				return true
			}
			return false
		}
		e.taint()
		e.taintNode("other")
		for i := range refused {
			e.pod(fmt.Sprint("refused", i), fmt.Sprint("uid", i), 0)
		}
		for i := range 5 {
			e.podOn("other", fmt.Sprint("pod", i), fmt.Sprint("other", i), 0)
		}
		e.taint(noExec("a"))
		require.Equal(t, refused+5, e.after(after))
		s.start = time.Now()
		e.taintNode("other", noExec("a"))
		for range 60 {
			if e.after(time.Minute) == refused {
				break
			}
		}
		s.mu.Lock()
		if out.last = time.Hour; len(s.deleted) == 5 {
			out.last = s.deleted[4]
		}
		out.requests = wave{requests: s.requests}.total() - s.requests["POST events"] - s.requests["PATCH events"]
		if guarded {
			out.waiting = int(waiting(t))
		}
		s.mu.Unlock()
		e.taint()
		time.Sleep(moment)
		if guarded {
			out.left = int(waiting(t))
		}
		time.Sleep(time.Minute)
	})
	return out
}

// TestFailedEvictionsDelayNoOthers: the server refuses for good to delete the pods of one node, or fails. Upstream gives them up.
func TestFailedEvictionsDelayNoOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	const refused, after, aMinute = 300, 10 * time.Minute, 5
	for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			stock, guarded := evictBesideRefused(t, false, code, refused, after), evictBesideRefused(t, true, code, refused, after)
			t.Logf("stock: last %s, %d requests; guarded: last %s, %d requests", stock.last, stock.requests, guarded.last, guarded.requests)
			require.LessOrEqual(t, guarded.last, stock.last+2*time.Second)
			require.Equal(t, refused, guarded.waiting)
			require.Zero(t, guarded.left)
			if code == http.StatusForbidden {
				require.LessOrEqual(t, guarded.requests, stock.requests*5/4+aMinute*int(after/time.Minute))
			}
			require.Len(t, stock.events, refused+5)
			require.Equal(t, stock.events, guarded.events, "one event of each pod")
		})
	}
}

// TestRefusals: which errors say that the server does not want a request.
func TestRefusals(t *testing.T) {
	pods := corev1.Resource("pods")
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	for want, errs := range map[bool][]error{
		true: {
			apierrors.NewForbidden(pods, "pod", nil), apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "pod", nil),
			fmt.Errorf("patch: %w", apierrors.NewBadRequest("no")), status(500, `admission webhook "keep" denied the request: no`),
		},
		false: {
			apierrors.NewTooManyRequests("later", 1), apierrors.NewInternalError(errors.New(`failed calling webhook "keep"`)),
			apierrors.NewServerTimeout(pods, "delete", 1), errors.New("connection refused"), context.DeadlineExceeded,
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, isRefusal(err), "%v", err)
		}
	}
}

// TestRefusedEvictionsAreSpread: so many together, and none sooner than its backoff; what is called off makes room.
func TestRefusedEvictionsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newRefusals(), time.Now()
		turn := func(after time.Duration) (time.Duration, func()) {
			at, end := r.turn(began.Add(after))
			return at.Sub(began), end
		}
		_, _ = turn(maxRefusedDelay)
		var ends []func()
		for i := range 3 * refusedAtOnce {
			at, end := turn(minEvictionDelay)
			require.Equal(t, time.Duration(1+i/refusedAtOnce)*refusedEvery, at)
			ends = append(ends, end)
		}
		ends[0]()
		ends[0]()
		first, _ := turn(minEvictionDelay)
		require.Equal(t, refusedEvery, first)
		next, _ := turn(minEvictionDelay)
		require.Equal(t, 4*refusedEvery, next)
		time.Sleep(time.Hour)
		_, _ = turn(time.Hour)
		require.Len(t, r.turns, 1, "nothing is kept of turns that have been")
	})
}

// TestLaterIsBounded: evictions wait to begin for ever, and yet what is left for later is done, the first of it first.
func TestLaterIsBounded(t *testing.T) {
	var g gate
	for range maxAtLimiter {
		_, err := g.enter(t.Context(), false)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_, _ = g.enter(ctx, false)
		close(ended)
	}()
	require.Eventually(t, g.busy, time.Minute, time.Millisecond)
	var done []int
	for i := range maxLater + 2 {
		g.afterwards(func() { done = append(done, i) })
	}
	require.Equal(t, []int{0, 1}, done)
	cancel()
	<-ended
	g.afterwards(func() { done = append(done, -1) })
	require.Len(t, done, maxLater+3)
}

// TestFailedEvictionsBeginLast: behind all that have not failed, and fewer at a time.
func TestFailedEvictionsBeginLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		var mu sync.Mutex
		var begun []bool // whether they have failed before
		var flights []*flight
		enter := func(failed bool, n int) {
			for range n {
				go func() {
					f, err := g.enter(t.Context(), failed)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						begun, flights = append(begun, failed), append(flights, f)
					}
				}()
			}
			synctest.Wait()
		}
		count := func(failed bool) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range begun {
				if b == failed {
					n++
				}
			}
			return n
		}
		enter(true, 2*maxAgain)
		require.Equal(t, maxAgain, count(true))
		enter(false, maxAtLimiter)
		require.Equal(t, maxAtLimiter-maxAgain, count(false))
		for len(flights) > 0 {
			mu.Lock()
			f := flights[0]
			flights = flights[1:]
			mu.Unlock()
			f.leave()
			synctest.Wait()
			if count(true) > maxAgain {
				require.Equal(t, maxAtLimiter, count(false))
			}
		}
		require.Equal(t, 2*maxAgain, count(true))
	})
}
