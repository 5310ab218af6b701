// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// TestGet: kubernetes-api-concepts, "Semantics for get and list", the table of get; "Unavailable resource
// versions". Both on an apiserver that has seen every write and on one that lags.
func TestGet(t *testing.T) {
	w := newWorld(t, "get")
	newest, stale := w.at(t, w.newest())["c0"], w.at(t, w.older)["c0"]
	//conformance:api-concepts Semantics for get: unset is most recent, 0 is any, a version is not older than that
	//conformance:api-concepts Unavailable resource versions: then it is 504, and says that the version is too large
	t.Run("rows", func(t *testing.T) { getRows(t, w, stale, newest) })
	//conformance:list-semantics Get support?: get may have no match
	t.Run("a match means nothing", func(t *testing.T) {
		for _, query := range []string{"resourceVersion=" + w.older + "&resourceVersionMatch=Exact", "resourceVersionMatch=Exact", "resourceVersionMatch=Sometimes"} {
			got := w.c.raw(t, "GET", "/api/v1/namespaces/get/configmaps/c0?"+query, "")
			require.Equal(t, http.StatusOK, got.code, query)
			require.Equal(t, newest, got.json(t)["metadata"].(map[string]any)["resourceVersion"], query)
			list := w.c.raw(t, "GET", "/api/v1/namespaces/get/configmaps?"+query, "")
			require.Equal(t, strings.HasPrefix(query, "resourceVersion="), list.code == http.StatusOK, "a list heeds it: %s", query)
		}
	})
	//conformance:api-concepts Efficient detection of changes: a watch goes on from the version of one object that was read
	t.Run("then watch", func(t *testing.T) {
		o, err := w.client(w.c).Get(t.Context(), "c0", metav1.GetOptions{})
		require.NoError(t, err)
		one := metav1.ListOptions{ResourceVersion: o.GetResourceVersion(), FieldSelector: "metadata.name=c0"}
		s := w.watch(t, w.c, one)
		w.write(t, "c1")
		changed := w.write(t, "c0")
		w.write(t, "c2")
		again := w.write(t, "c0")
		require.Equal(t, change{watch.Modified, "c0", changed}, s.next())
		require.Equal(t, change{watch.Modified, "c0", again}, s.next())
		one.ResourceVersion = changed
		require.Equal(t, change{watch.Modified, "c0", again}, w.watch(t, w.c, one).next(), "from the last version on")
	})
	//conformance:api-concepts Unavailable resource versions: the server waits for the version to come
	t.Run("the server waits", func(t *testing.T) {
		last := w.newest()
		w.answersOnRelease(t, func() error {
			o, err := w.client(w.servers[lagging]).Get(t.Context(), "c0", metav1.GetOptions{ResourceVersion: last})
			if err == nil && o.GetResourceVersion() != last {
				err = fmt.Errorf("version %s, want %s", o.GetResourceVersion(), last)
			}
			return err
		})
	})
}

// withoutAnswer is for how long a request is seen not to be answered. What lags answers by itself after 3 s: with an error.
const withoutAnswer = 500 * time.Millisecond

// answersOnRelease expects that a request to the server that lags gets no answer before the lag ends, and then the right one.
func (w *world) answersOnRelease(t *testing.T, request func() error) {
	t.Helper()
	answered := make(chan error, 1)
	go func() { answered <- request() }()
	select {
	case err := <-answered:
		t.Fatalf("it was answered although the server lags: %v", err)
	case <-time.After(withoutAnswer):
	}
	w.etcd.Release()
	require.NoError(t, <-answered)
}

// retryAfter notes the header of the answers, which client-go does not hand on.
type retryAfter struct {
	next   http.RoundTripper
	header atomic.Pointer[string]
}

func (r *retryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		header := resp.Header.Get("Retry-After")
		r.header.Store(&header)
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// TestRetryAfter: kubernetes-api-concepts, "Unavailable resource versions", the header.
//
//conformance:api-concepts Unavailable resource versions: and says when to ask again
func TestRetryAfter(t *testing.T) {
	h := newHistory(t, shared(t), "retry-after")
	h.write(t, "a")
	config := h.c.AdminConfig()
	noted := &retryAfter{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		noted.next = next
		return noted
	})
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.Resource(configMaps).Namespace(h.namespace).List(t.Context(), metav1.ListOptions{ResourceVersion: h.future(t)})
	isTooLarge(t, err)
	seconds, err := strconv.Atoi(*noted.header.Load())
	require.NoError(t, err)
	require.Positive(t, seconds)
}

func getRows(t *testing.T, w *world, stale, newest string) {
	for server, c := range w.servers {
		get := func(t *testing.T, rv string) (string, error) {
			o, err := w.client(c).Get(t.Context(), "c0", metav1.GetOptions{ResourceVersion: rv})
			if err != nil {
				return "", err
			}
			return o.GetResourceVersion(), nil
		}
		t.Run(server+"/unset: most recent", func(t *testing.T) {
			t.Parallel()
			got, err := get(t, "")
			require.NoError(t, err)
			require.Equal(t, newest, got)
		})
		t.Run(server+"/0: any", func(t *testing.T) {
			t.Parallel()
			got, err := get(t, "0")
			require.NoError(t, err)
			require.Contains(t, []string{stale, newest}, got)
			require.Equal(t, server == lagging, got == stale, "if the apiserver does not lag, nothing is tested")
		})
		t.Run(server+"/older: not older than", func(t *testing.T) {
			t.Parallel()
			got, err := get(t, w.older)
			require.NoError(t, err)
			require.Contains(t, []string{stale, newest}, got)
		})
		t.Run(server+"/newest: not older than", func(t *testing.T) {
			t.Parallel()
			got, err := get(t, newest)
			if server == lagging {
				isTooLarge(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, newest, got)
		})
		t.Run(server+"/future: unavailable", func(t *testing.T) {
			t.Parallel()
			_, err := get(t, w.future(t))
			isTooLarge(t, err)
		})
	}
}
