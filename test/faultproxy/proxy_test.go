// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

type rawResult struct {
	code   int
	header http.Header
	err    error // the Status in the body
}

// raw asks without client-go's retries, in the harness's encoding.
func (h *harness) raw(t *testing.T, path string) rawResult {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.proxy.URL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", h.config.AcceptContentTypes)
	res, err := h.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	out := rawResult{code: res.StatusCode, header: res.Header}
	if res.StatusCode != http.StatusOK {
		require.Equal(t, h.config.AcceptContentTypes, res.Header.Get("Content-Type"))
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		require.NoError(t, err)
		out.err = apierrors.FromObject(obj)
	}
	return out
}

func TestHoldLists(t *testing.T) {
	h := newHarness(t, k8sruntime.ContentTypeProtobuf)
	p := h.watch(t, "pods")
	f := h.inject(t, Target{Resource: nodes}, Hold{Lists: true})
	listed := make(chan string, 1)
	go func() {
		l, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			listed <- err.Error()
			return
		}
		listed <- l.ResourceVersion
	}()
	eventually(t, "the list is held", func() bool { return f.Stats().Requests == 1 })
	h.requireUntouched(t, p) // moves the apiserver's resource version on
	require.Empty(t, listed)
	_, err := h.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "another resource's list is not held")
	f.Clear()
	require.Equal(t, "100", <-listed, "a held list shows the state of when it was asked for")
}

func TestIdentity(t *testing.T) {
	h := newHarness(t, k8sruntime.ContentTypeJSON)
	withToken := rest.CopyConfig(h.config)
	withToken.BearerToken = "the-token"
	anonymous := rest.AnonymousClientConfig(h.config)
	otherCert, otherKey, _ := h.ca.issue(t, "somebody-else")
	other := rest.CopyConfig(h.config)
	other.CertData, other.KeyData = otherCert, otherKey
	tests := []struct {
		name       string
		config     *rest.Config
		auth, peer string
		refused    bool
	}{
		{name: "certificate", config: h.config, peer: "system:kube-controller-manager"},
		{name: "certificate and token", config: withToken, auth: "Bearer the-token"},
		{name: "neither", config: anonymous},
		{name: "another certificate", config: other, refused: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := kubernetes.NewForConfigOrDie(tc.config)
			before := len(h.api.requestsSeen())
			_, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if tc.refused {
				require.True(t, apierrors.IsUnauthorized(err), "%v", err)
				require.Len(t, h.api.requestsSeen(), before)
				return
			}
			require.NoError(t, err)
			w, err := c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			defer w.Stop()
			got := h.api.requestsSeen()[before:]
			require.Len(t, got, 2)
			for _, r := range got {
				require.Equal(t, tc.auth, r.auth)
				require.Equal(t, tc.peer, r.peer)
			}
			require.Empty(t, got[1].encoding, "a compressed watch could not be read")
		})
	}
}

func TestPassesBodiesThrough(t *testing.T) {
	h := newHarness(t, k8sruntime.ContentTypeJSON)
	echo := make(chan []byte, 1)
	h.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		echo <- b
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(b)
	})
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.proxy.URL()+"/api/v1/namespaces/default/pods/p/binding", bytes.NewReader(body))
	require.NoError(t, err)
	res, err := h.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, body, <-echo)
	require.Equal(t, body, got)
	require.Equal(t, 2, res.ProtoMajor)
	require.EqualValues(t, 1, h.proxy.Requests().Sum(func(k RequestKey) bool {
		return k.Verb == "create" && k.Resource == pods && k.Subresource == "binding" && k.Code == http.StatusCreated
	}))
}

func TestSwitchBackend(t *testing.T) {
	for _, how := range []Handover{EndWatches, CutConnections} {
		inBothEncodings(t, func(t *testing.T, h *harness) {
			n := h.watch(t, "nodes")
			h.api.send("nodes", watch.Added, "n1")
			n.require(t, "ADDED n1")
			require.Error(t, h.proxy.SwitchBackend("nowhere", how))
			require.NoError(t, h.proxy.SwitchBackend("b", how))
			eventually(t, "the watch is over", n.isClosed)
			if how == EndWatches {
				require.Len(t, n.got(), 1, "ended cleanly")
				require.EqualValues(t, 1, h.dials.Load())
			}
			again := h.watch(t, "nodes")
			require.Len(t, h.other.open("nodes"), 1)
			h.other.send("nodes", watch.Added, "lagging")
			again.require(t, "ADDED lagging")
			if how == CutConnections {
				require.EqualValues(t, 2, h.dials.Load())
			}
			ws := h.proxy.Watches()
			require.Equal(t, "b", ws[len(ws)-1].Backend)
		})
	}
}

func TestBackendDown(t *testing.T) {
	h := newHarness(t, k8sruntime.ContentTypeJSON)
	h.api.CloseClientConnections()
	h.api.Close()
	res := h.raw(t, "/api/v1/nodes")
	require.Equal(t, http.StatusServiceUnavailable, res.code)
	require.True(t, apierrors.IsServiceUnavailable(res.err), "%v", res.err)
	res = h.raw(t, "/api/v1/nodes?watch=1")
	require.Equal(t, http.StatusServiceUnavailable, res.code)
}

func TestBlackHole(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n := h.watch(t, "nodes")
		f := h.proxy.BlackHole()
		require.Equal(t, 1, f.Stats().Streams)
		rv := h.api.send("nodes", watch.Added, "n1")
		eventually(t, "the event is at the proxy", func() bool { return h.proxy.Progress(nodes).Sent.ResourceVersion == rv })
		// Neither the old connection nor a new one answers.
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := h.client.CoreV1().Nodes().List(short, metav1.ListOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		fresh := rest.CopyConfig(h.config)
		fresh.Timeout = 300 * time.Millisecond
		_, err = kubernetes.NewForConfigOrDie(fresh).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		require.Error(t, err)
		require.Empty(t, n.got())
		require.NotEqual(t, rv, h.proxy.Progress(nodes).Delivered.ResourceVersion)
		f.Clear()
		n.require(t, "ADDED n1")
	})
}

func TestRefuse(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n := h.watch(t, "nodes")
		f := h.proxy.Refuse()
		require.Equal(t, 1, f.Stats().Streams)
		eventually(t, "the watch is over", n.isClosed)
		second := h.proxy.Refuse()
		second.Clear()
		_, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.True(t, utilnet.IsConnectionRefused(err), "%v", err)
		f.Clear()
		_, err = h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, "the same address answers again")
		again := h.watch(t, "nodes")
		h.api.send("nodes", watch.Added, "n1")
		again.require(t, "ADDED n1")
	})
	t.Run("closed while refusing", func(t *testing.T) {
		h := newHarness(t, k8sruntime.ContentTypeJSON)
		h.proxy.Refuse()
		h.proxy.Close()
	})
}

func TestClientGoesAwayWhileHeld(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		p := h.watch(t, "pods")
		n := h.watch(t, "nodes")
		f := h.inject(t, Target{Resource: nodes}, Hold{})
		h.api.send("nodes", watch.Added, "n1")
		eventually(t, "the event is held", func() bool { return f.Stats().Held.Frames == 1 })
		n.w.Stop()
		eventually(t, "the held frame is dropped", func() bool { return f.Stats().Dropped.Frames == 1 })
		require.Len(t, h.proxy.Watches(), 1)
		h.requireUntouched(t, p)
		eventually(t, "the backend's stream is gone", func() bool { return len(h.api.open("nodes")) == 0 })
	})
}

func TestJournalKeepsTheLatest(t *testing.T) {
	j := &journal{size: 2}
	for _, id := range []string{"1", "2", "3"} {
		j.add(Entry{Fault: id})
	}
	require.Equal(t, []Entry{{Fault: "2"}, {Fault: "3"}}, j.snapshot())
}

func TestStartRefusesBadOptions(t *testing.T) {
	ca := newAuthority(t)
	_, _, pair := ca.issue(t, "x")
	good := func() Options {
		return Options{ServingCert: pair, Backends: []Backend{{Name: "a", URL: "https://127.0.0.1:1", CAs: x509.NewCertPool()}}}
	}
	tests := map[string]func(*Options){
		"loopback":            func(o *Options) { o.Listen = "0.0.0.0:0" },
		"serving certificate": func(o *Options) { o.ServingCert = tls.Certificate{} },
		"no backend":          func(o *Options) { o.Backends = nil },
		"used twice":          func(o *Options) { o.Backends = append(o.Backends, o.Backends[0]) },
		"https://host:port":   func(o *Options) { o.Backends[0].URL = "http://127.0.0.1:1" },
		"client certificate":  func(o *Options) { o.ClientCert = &tls.Certificate{} },
		"negative":            func(o *Options) { o.JournalSize = -1 },
	}
	for want, spoil := range tests {
		t.Run(want, func(t *testing.T) {
			o := good()
			spoil(&o)
			_, err := Start(context.Background(), o)
			require.ErrorContains(t, err, want)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	p, err := Start(ctx, good())
	require.NoError(t, err)
	for _, e := range []Effect{Delay{By: -1}, DropEvents{Count: -1}, TooLargeRV{Count: -1}, TooManyRequests{RetryAfter: -1}, nil} {
		_, err := p.Inject(Target{Resource: corev1.Resource("nodes")}, e)
		require.Error(t, err)
	}
	_, err = p.Inject(Target{}, Hold{})
	require.ErrorIs(t, err, errNoResource)
	cancel()
	requireNoGoroutines(t)
}
