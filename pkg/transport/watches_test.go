// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

var podsV1 = corev1.SchemeGroupVersion.WithResource("pods")

// heldServer answers each watch of pods with what begins it, and then holds it back.
type heldServer struct {
	*httptest.Server

	mu      sync.Mutex
	asked   []string // resourceVersion, "all at" it, or "list"
	version int
	ended   int
	mute    bool // what is resumed brings nothing
}

const wait, tick = time.Minute, time.Millisecond

func newHeldServer(t *testing.T, http2 bool) *heldServer {
	s := &heldServer{version: 10}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// answer is what a request is answered with before nothing more comes.
func (s *heldServer) answer(r *http.Request) (frames string, watches bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if q.Get("watch") != "true" {
		s.asked = append(s.asked, "list")
		return "", false
	}
	from := q.Get("resourceVersion")
	if q.Get("sendInitialEvents") == "true" {
		from = "all at " + from
		frames = fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`, s.version)
	}
	s.asked = append(s.asked, from)
	s.version++
	frames += fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%d","namespace":"ns","uid":"u%d","resourceVersion":"%d"}}}`, s.version, s.version, s.version)
	if s.mute && q.Get("sendInitialEvents") != "true" {
		frames = ""
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		frames = strings.ReplaceAll(frames, `"kind":"Pod","apiVersion":"v1"`, `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`)
	}
	return frames, true
}

func (s *heldServer) serve(w http.ResponseWriter, r *http.Request) {
	frames, watches := s.answer(r)
	if !watches {
		http.Error(w, "no lists here", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, frames)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
	s.mu.Lock()
	s.ended++
	s.mu.Unlock()
}

// RoundTrip implements http.RoundTripper: it answers without a connection, for the time of a bubble.
func (s *heldServer) RoundTrip(r *http.Request) (*http.Response, error) {
	frames, watches := s.answer(r)
	if !watches {
		return &http.Response{StatusCode: http.StatusTeapot, Request: r, Header: http.Header{}, Body: http.NoBody}, nil
	}
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	if frames != "" {
		go func() { _, _ = io.WriteString(w, frames) }()
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1}, nil
}

func (s *heldServer) requests() (asked []string, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(asked, s.asked...), s.ended
}

func (s *heldServer) builder(http2 bool) clientbuilder.ControllerClientBuilder {
	config := &restclient.Config{Host: s.URL, TLSClientConfig: restclient.TLSClientConfig{Insecure: true}}
	if !http2 {
		config.NextProtos = []string{"http/1.1"}
	}
	return clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
}

// A stalled watch is ended, and the informer goes on where it was: no list, no error.
func TestStalledWatchIsOpenedAgain(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
		t.Run(name, func(t *testing.T) {
			server := newHeldServer(t, http2)
			watches := NewWatches()
			watches.silent = 50 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			factory := informers.NewSharedInformerFactory(watches.Clients(server.builder(http2)).ClientOrDie("shared-informers"), 0)
			pods := factory.Core().V1().Pods().Informer()
			factory.Start(ctx.Done())
			has := func(rv string) func() bool {
				return func() bool { return pods.GetStore().LastStoreSyncResourceVersion() == rv }
			}
			require.Eventually(t, has("11"), wait, tick)
			require.Zero(t, watches.End(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), true))

			require.Eventually(t, func() bool { return watches.End(ctx, podsV1, true) == 1 }, wait, tick, "when it has brought nothing for a while")
			require.Eventually(t, has("12"), wait, tick)
			require.Eventually(t, func() bool { _, ended := server.requests(); return ended == 1 }, wait, tick, "the server sees the end")
			asked, _ := server.requests()
			require.Equal(t, []string{"all at ", "11"}, asked)
			require.Len(t, pods.GetStore().List(), 2)
			require.Never(t, func() bool { return watches.End(ctx, podsV1, true) > 0 }, 10*watches.silent, tick, "not again so soon")

			cancel()
			factory.Shutdown()
			watches.mu.Lock()
			defer watches.mu.Unlock()
			require.Empty(t, watches.open, "nothing is kept of watches that are closed")
		})
	}
}

// A watch that is taken up where the cache is does not bring an event that was lost before that: once it has brought
// nothing, either, the informer relists, unless others get nothing as well.
func TestWatchThatBringsNothingAgainIsFollowedByAList(t *testing.T) {
	for name, test := range map[string]struct {
		mute, relist bool
		asked        []string
		pods         []string
	}{
		"nothing":               {true, true, []string{"all at ", "11", "all at 11"}, []string{"ns/pod-13"}}, // What the server has no longer is gone.
		"something":             {false, true, []string{"all at ", "11", "12"}, []string{"ns/pod-11", "ns/pod-12", "ns/pod-13"}},
		"nothing, as to others": {true, false, []string{"all at ", "11", "11"}, []string{"ns/pod-11"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &heldServer{version: 10, mute: test.mute}
				watches := NewWatches()
				builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: "http://server", Transport: server}}
				ctx, cancel := context.WithCancel(t.Context())
				factory := informers.NewSharedInformerFactory(watches.Clients(builder).ClientOrDie("shared-informers"), 0)
				pods := factory.Core().V1().Pods().Informer()
				factory.Start(ctx.Done())
				for n, until := range []time.Duration{silentFor, silentFor + minEndInterval} {
					synctest.Wait()
					asked, _ := server.requests()
					require.Equal(t, test.asked[:n+1], asked)
					ended := 0
					for began := time.Now(); ended == 0 && time.Since(began) < until; ended = watches.End(ctx, podsV1, test.relist) {
						time.Sleep(time.Second)
						synctest.Wait()
					}
					require.Equal(t, 1, ended)
					time.Sleep(3 * time.Second) // The informer backs off.
				}
				synctest.Wait()
				asked, _ := server.requests()
				require.Equal(t, test.asked, asked)
				require.ElementsMatch(t, test.pods, pods.GetStore().ListKeys())
				cancel()
				factory.Shutdown()
			})
		})
	}
}

// Those of metadata informers are ended, too; others are not, and the end of a watch is no error.
func TestWhichWatchesEnd(t *testing.T) {
	server := newHeldServer(t, true)
	watches := NewWatches()
	watches.silent = 0
	wrapped := watches.Clients(server.builder(true))
	meta, err := metadata.NewForConfig(wrapped.ConfigOrDie("metadata-informers"))
	require.NoError(t, err)
	clients := map[string]kubernetes.Interface{"informers'": wrapped.ClientOrDie("x"), "others'": server.builder(true).ClientOrDie("x")}
	var open []watch.Interface
	begin := func(w watch.Interface, err error) watch.Interface {
		require.NoError(t, err)
		require.Equal(t, watch.Added, (<-w.ResultChan()).Type)
		open = append(open, w)
		return w
	}
	ends := begin(meta.Resource(podsV1).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))
	begin(clients["others'"].CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))
	begin(clients["informers'"].CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))
	require.Equal(t, 1, watches.End(t.Context(), podsV1, true))
	_, more := <-ends.ResultChan()
	require.False(t, more, "it ends as if the server had ended it")
	for _, w := range open[1:] {
		select {
		case e := <-w.ResultChan():
			t.Fatalf("another watch ended: %v", e)
		default:
		}
		w.Stop()
	}
}

// An apiserver is not flooded: 30 s from one end to the next, longer and longer while nothing comes of it.
func TestEndsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := NewWatches()
		gvr := schema.GroupVersionResource{Resource: "pods"}
		open := func() *watchBody {
			now := time.Now()
			b := &watchBody{ReadCloser: io.NopCloser(strings.NewReader("event")), set: watches, resource: gvr, opened: now, cancel: func(error) {}}
			b.read.Store(&now)
			watches.add(b)
			return b
		}
		ended := func(during time.Duration, stalled func() bool) (at []time.Duration) {
			began := time.Now()
			var b *watchBody
			for ; time.Since(began) < during; time.Sleep(time.Second) {
				if b == nil {
					b = open()
				}
				if !stalled() {
					continue
				}
				if n := watches.End(t.Context(), gvr, true); n > 0 {
					require.Equal(t, 1, n)
					at = append(at, time.Since(began)/time.Second)
					require.NoError(t, b.Close())
					b = nil
				}
			}
			if b != nil {
				require.NoError(t, b.Close())
			}
			return at
		}
		always := func() bool { return true }
		require.Equal(t, []time.Duration{5, 35, 95, 215, 455, 755, 1055}, ended(20*time.Minute, always))
		time.Sleep(maxEndInterval)
		i := 0
		now := func() bool { i++; return i%20 < 7 } // It is healed by the end.
		require.Equal(t, []time.Duration{5, 39, 79, 119}, ended(2*time.Minute, now), "healed in between: not rarer, and never within 30 s")

		time.Sleep(maxEndInterval + time.Second)
		require.Zero(t, watches.End(t.Context(), schema.GroupVersionResource{Resource: "nodes"}, true))
		require.NotContains(t, watches.ends, gvr, "nothing is kept of what was stalled long ago")

		b := open()
		defer b.Close()
		time.Sleep(maxEndInterval)
		_, err := b.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Zero(t, watches.End(t.Context(), gvr, true), "what brings something is not held back")
		time.Sleep(silentFor)
		require.Equal(t, 1, watches.End(t.Context(), gvr, true))
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// One resource was rewound: its informer relists, that of another goes on.
func TestOneResourceRelists(t *testing.T) {
	server := newHeldServer(t, true)
	watches := NewWatches()
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(watches.Clients(server.builder(true)).ClientOrDie("shared-informers"), 0)
	pods := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	require.Eventually(t, func() bool { return pods.GetStore().LastStoreSyncResourceVersion() == "11" }, wait, tick)
	replaced := make(chan string, 9)
	pods.GetStore().(cache.ResourceVersionObservable).AddReplaceObserver(func(rv string) { replaced <- rv })
	require.Zero(t, watches.Relist(schema.GroupResource{Group: "apps", Resource: "pods"}, time.Now()))
	require.Equal(t, 1, watches.Relist(schema.GroupResource{Resource: "pods"}, time.Now()))
	select {
	case rv := <-replaced:
		require.Equal(t, "11", rv)
	case <-time.After(wait):
		t.Error("not listed")
	}
	watches.mu.Lock()
	require.Empty(t, watches.expired)
	watches.mu.Unlock()
	cancel()
	factory.Shutdown()
}
