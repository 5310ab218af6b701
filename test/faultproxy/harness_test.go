// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var (
	nodes = corev1.Resource("nodes")
	pods  = corev1.Resource("pods")
)

// harness is a client-go client, a proxy and two fake apiservers.
type harness struct {
	ca     *authority
	api    *fakeAPI
	other  *fakeAPI
	proxy  *Proxy
	config *rest.Config
	http   *http.Client
	client kubernetes.Interface
	dials  atomic.Int32
}

func newHarness(t *testing.T, contentType string) *harness {
	t.Helper()
	// Registered first, so that it runs last, when everything else has been cleaned up.
	t.Cleanup(func() { requireNoGoroutines(t) })
	h := &harness{ca: newAuthority(t)}
	h.api, h.other = newFakeAPI(t, h.ca), newFakeAPI(t, h.ca)
	_, _, serving := h.ca.issue(t, "proxy")
	certPEM, keyPEM, client := h.ca.issue(t, "system:kube-controller-manager")
	p, err := Start(context.Background(), Options{
		ServingCert: serving, ClientCAs: h.ca.pool, ClientCert: &client,
		Backends: []Backend{{Name: "a", URL: h.api.URL, CAs: h.ca.pool}, {Name: "b", URL: h.other.URL, CAs: h.ca.pool}},
	})
	require.NoError(t, err)
	h.proxy = p
	t.Cleanup(p.Close)
	dialer := &net.Dialer{}
	h.config = &rest.Config{
		Host:            p.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: h.ca.pem, CertData: certPEM, KeyData: keyPEM},
		ContentConfig:   rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
		UserAgent:       "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes",
		QPS:             -1,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			h.dials.Add(1)
			c, err := dialer.DialContext(ctx, network, addr)
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			return c, err
		},
	}
	h.http, err = rest.HTTPClientFor(h.config)
	require.NoError(t, err)
	h.client, err = kubernetes.NewForConfigAndClient(h.config, h.http)
	require.NoError(t, err)
	return h
}

// inBothEncodings runs a test with either encoding that watches have.
func inBothEncodings(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	for name, contentType := range map[string]string{"JSON": k8sruntime.ContentTypeJSON, "protobuf": k8sruntime.ContentTypeProtobuf} {
		t.Run(name, func(t *testing.T) { test(t, newHarness(t, contentType)) })
	}
}

func (h *harness) inject(t *testing.T, target Target, e Effect) *Fault {
	t.Helper()
	f, err := h.proxy.Inject(target, e)
	require.NoError(t, err)
	return f
}

// clientWatch collects what one watch delivered.
type clientWatch struct {
	w      watch.Interface
	mu     sync.Mutex
	events []watch.Event
	times  []time.Time
	closed bool
}

func (h *harness) watch(t *testing.T, resource string) *clientWatch {
	t.Helper()
	return h.watchWith(t, resource, metav1.ListOptions{ResourceVersion: "100"})
}

// watchWith opens a watch and returns once it runs through proxy and backend.
func (h *harness) watchWith(t *testing.T, resource string, opts metav1.ListOptions) *clientWatch {
	t.Helper()
	before := h.newestWatch()
	served := h.api.everOpened() + h.other.everOpened()
	var w watch.Interface
	var err error
	switch resource {
	case "nodes":
		w, err = h.client.CoreV1().Nodes().Watch(t.Context(), opts)
	case "pods":
		w, err = h.client.CoreV1().Pods("").Watch(t.Context(), opts)
	}
	require.NoError(t, err)
	eventually(t, "the watch is open", func() bool {
		return h.newestWatch() > before && h.api.everOpened()+h.other.everOpened() > served
	})
	return collect(t, w)
}

// newestWatch is the id of the watch that was opened last.
func (h *harness) newestWatch() int64 {
	ws := h.proxy.Watches()
	if len(ws) == 0 {
		return 0
	}
	return ws[len(ws)-1].ID
}

func collect(t *testing.T, w watch.Interface) *clientWatch {
	t.Helper()
	c := &clientWatch{w: w}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			c.mu.Lock()
			c.events = append(c.events, e)
			c.times = append(c.times, time.Now())
			c.mu.Unlock()
		}
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
	}()
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
	return c
}

// got lists the events so far as "TYPE name".
func (c *clientWatch) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{}
	for _, e := range c.events {
		name := ""
		if m, err := meta.Accessor(e.Object); err == nil {
			name = m.GetName()
		}
		out = append(out, strings.TrimSpace(string(e.Type)+" "+name))
	}
	return out
}

func (c *clientWatch) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *clientWatch) timeOf(i int) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[i]
}

func (c *clientWatch) last() watch.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[len(c.events)-1]
}

func (c *clientWatch) require(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "the watch delivers "+strings.Join(want, ", "), func() bool { return len(c.got()) >= len(want) })
	require.Equal(t, want, c.got())
}

// requireUntouched proves that another resource's stream on the same client connection still flows. What
// was sent on the target stream before is thereby given time to come through, should nothing hold it.
func (h *harness) requireUntouched(t *testing.T, c *clientWatch) {
	t.Helper()
	before := len(c.got())
	for range 3 {
		h.api.send("pods", watch.Modified, "bystander")
	}
	eventually(t, "the bystander's events arrive", func() bool { return len(c.got()) == before+3 })
	require.False(t, c.isClosed(), "bystander watch was closed")
	require.EqualValues(t, 1, h.dials.Load(), "the streams must share one client connection")
}

// requireNoGoroutines waits until no goroutine runs this package's code or an HTTP/2 connection.
func requireNoGoroutines(t *testing.T) {
	t.Helper()
	var left string
	eventuallyDetached(t, func() bool {
		buf := make([]byte, 4<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "requireNoGoroutines") || strings.Contains(g, "testing.tRunner") {
				continue
			}
			if strings.Contains(g, "test/faultproxy") || strings.Contains(g, "http2") {
				left += g + "\n\n"
			}
		}
		return left == ""
	}, func() string { return "goroutines left over:\n" + left })
}

// eventuallyDetached is for cleanups, where t.Context() is done.
func eventuallyDetached(t *testing.T, cond func() bool, message func() string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !cond(); {
		if time.Now().After(end) {
			t.Error(message())
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
