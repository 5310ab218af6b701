// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// slowLists is a server of pods that sends one object of a list a second. What it sends after the list does not come.
type slowLists struct {
	mu       sync.Mutex
	objects  int
	stallAt  int // for the next list: nothing comes after so many objects; 0: all comes
	lists    int
	resumed  int
	end      func() // ends the watch that is open
	complete time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *slowLists) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancel(req.Context())
	body, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		s.lists++
		go s.list(ctx, w, s.objects, s.stallAt)
		s.stallAt = 0
	} else {
		s.resumed++
	}
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1}, nil
}

func (s *slowLists) list(ctx context.Context, w io.Writer, objects, stallAt int) {
	for i := range objects {
		if i == stallAt && stallAt > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%d","namespace":"ns","resourceVersion":"9"}}}`, i)
	}
	_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = time.Now()
}

// endWatch ends the watch that is open, as an apiserver does every 5 to 10 min.
func (s *slowLists) endWatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// set says what the next lists are like, and forgets those before.
func (s *slowLists) set(objects, stallAt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.stallAt, s.lists, s.resumed, s.complete = objects, stallAt, 0, 0, time.Time{}
}

func (s *slowLists) seen() (lists, resumed int, complete time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.resumed, s.complete
}

// slowly runs f with an informer of pods on such a server, once it has its first list.
func slowly(t *testing.T, f func(t *testing.T, server *slowLists, watches *Watches)) {
	synctest.Test(t, func(t *testing.T) {
		server, watches := &slowLists{objects: 1}, NewWatches()
		config := &restclient.Config{Host: "http://server", Transport: server}
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(watches.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}).ClientOrDie("shared-informers"), 0)
		pods := factory.Core().V1().Pods().Informer()
		factory.Start(ctx.Done())
		defer func() {
			cancel()
			factory.Shutdown()
		}()
		time.Sleep(10 * time.Second)
		require.True(t, pods.HasSynced())
		f(t, server, watches)
		require.Empty(t, watches.expired)
	})
}

var ofPods = schema.GroupResource{Resource: "pods"}

// A list that is asked for again and again comes to its end all the same, and a watch is not made to list once more for it later.
func TestAListUnderWayIsSpared(t *testing.T) {
	for name, tc := range map[string]struct{ stallAt, lists int }{"slow": {0, 1}, "stalled": {20, 2}} {
		t.Run(name, func(t *testing.T) {
			slowly(t, func(t *testing.T, server *slowLists, watches *Watches) {
				server.set(100, tc.stallAt)
				began := time.Now()
				require.Equal(t, 1, watches.Relist(ofPods, began))
				ended := 0
				for range 6 {
					time.Sleep(30 * time.Second)
					if _, _, complete := server.seen(); !complete.IsZero() {
						break // The store was replaced.
					}
					ended += watches.Relist(ofPods, began)
				}
				lists, _, complete := server.seen()
				require.Equal(t, tc.lists, lists)
				require.Equal(t, tc.lists-1, ended)
				require.WithinDuration(t, began.Add(100*time.Second+time.Duration(ended)*30*time.Second), complete, 5*time.Second)

				server.set(1, 0)
				time.Sleep(5 * time.Minute)
				server.endWatch()
				time.Sleep(time.Minute)
				lists, resumed, _ := server.seen()
				require.Zero(t, lists, "the watch that has ended is resumed")
				require.Equal(t, 1, resumed)
			})
		})
	}
}

// A list from before that time may show what was before the rewind.
func TestAListFromBeforeIsNotSpared(t *testing.T) {
	slowly(t, func(t *testing.T, server *slowLists, watches *Watches) {
		server.set(100, 0)
		require.Equal(t, 1, watches.Relist(ofPods, time.Now()))
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, watches.Relist(ofPods, time.Now()))
		time.Sleep(110 * time.Second)
		lists, resumed, _ := server.seen()
		require.Equal(t, 2, lists)
		require.Zero(t, resumed)
	})
}

// A watch that goes on from where the cache is brings no list, whatever else it brings.
func TestAWatchSinceThenIsNotSpared(t *testing.T) {
	slowly(t, func(t *testing.T, server *slowLists, watches *Watches) {
		since := time.Now()
		server.set(1, 0)
		server.endWatch()
		time.Sleep(time.Second)
		lists, resumed, _ := server.seen()
		require.Zero(t, lists)
		require.Equal(t, 1, resumed)
		time.Sleep(time.Second)
		require.Equal(t, 1, watches.Relist(ofPods, since))
		time.Sleep(10 * time.Second)
		lists, _, _ = server.seen()
		require.Equal(t, 1, lists)
	})
}

// The process is told to relist as a whole at the same time.
func TestAListThatHasBegunIsNotAskedFor(t *testing.T) {
	slowly(t, func(t *testing.T, server *slowLists, watches *Watches) {
		server.set(1, 0)
		require.Equal(t, 1, watches.Relist(ofPods, time.Now()))
		cache.RelistReflectors()
		time.Sleep(time.Minute)
		server.endWatch()
		time.Sleep(time.Minute)
		lists, resumed, _ := server.seen()
		require.Equal(t, 1, lists)
		require.Equal(t, 1, resumed)
	})
}

// Two informers of a resource: each relists once, whichever of their requests comes first.
func TestTwoInformersOfAResourceRelist(t *testing.T) {
	const (
		path    = "http://server/api/v1/pods?"
		resumed = path + "watch=true&resourceVersion=5"
		streams = path + "watch=true&sendInitialEvents=true&resourceVersion=5"
		lists   = path + "resourceVersion=5"
	)
	for name, tc := range map[string]struct {
		requests []string
		codes    []int
	}{
		"one after the other": {[]string{resumed, streams, resumed, lists, resumed}, []int{410, 200, 410, 200, 200}},
		"together":            {[]string{resumed, resumed, lists, streams, resumed}, []int{410, 410, 200, 200, 200}},
		"one lists at once":   {[]string{resumed, streams, streams, resumed}, []int{410, 200, 200, 200}},
		"both list at once":   {[]string{path, path + "watch=true", resumed}, []int{200, 200, 200}},
		"these begin no list": {[]string{lists + "&continue=x", "http://server/api/v1/namespaces/ns/pods", resumed, streams, resumed, streams}, []int{200, 200, 410, 200, 410, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			set := NewWatches()
			at := watching{next: emptyServer{}, set: set}
			request := func(url string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				require.NoError(t, err)
				resp, err := at.RoundTrip(req)
				require.NoError(t, err)
				return resp
			}
			open := []*http.Response{request(resumed), request(resumed)}
			require.Equal(t, 2, set.Relist(ofPods, time.Now()))
			require.Zero(t, set.Relist(ofPods, time.Now()), "they have ended")
			for _, resp := range open {
				require.NoError(t, resp.Body.Close())
			}
			var codes []int
			for _, url := range tc.requests {
				resp := request(url)
				require.NoError(t, resp.Body.Close())
				codes = append(codes, resp.StatusCode)
			}
			require.Equal(t, tc.codes, codes)
			require.Empty(t, set.expired)
		})
	}
}

// emptyServer answers everything with nothing.
type emptyServer struct{}

// RoundTrip implements http.RoundTripper.
func (emptyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: req, Body: http.NoBody}, nil
}
