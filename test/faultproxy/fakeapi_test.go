// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// authority signs the certificates of one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(t *testing.T, name string) (certPEM, keyPEM []byte, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return certPEM, keyPEM, pair
}

// seen is what the fake apiserver noted of a request.
type seen struct{ method, path, query, auth, peer, encoding string }

// fakeAPI serves watches and lists of core/v1 with the encoders of the real apiserver.
type fakeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	rv       int
	watches  []*fakeWatch
	requests []seen
	// stored, if set, answers everything but watches with what it returns for the request's body.
	stored func(r *http.Request, body runtime.Object) runtime.Object
}

type fakeWatch struct {
	resource string
	query    string
	events   chan watch.Event
	end      chan struct{} // closed by the test: end the stream cleanly
	abort    chan struct{} // closed by the test: cut it
	gone     chan struct{} // closed when the handler has returned
	mu       sync.Mutex
	written  int // events written so far
}

func (w *fakeWatch) writtenSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written
}

func newFakeAPI(t *testing.T, ca *authority) *fakeAPI {
	t.Helper()
	api := &fakeAPI{rv: 100}
	api.Server = httptest.NewUnstartedServer(api)
	_, _, pair := ca.issue(t, "apiserver")
	api.Server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca.pool, ClientAuth: tls.VerifyClientCertIfGiven}
	api.Server.EnableHTTP2 = true
	api.Server.StartTLS()
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	return api
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := seen{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, auth: r.Header.Get("Authorization"), encoding: r.Header.Get("Accept-Encoding")}
	if len(r.TLS.PeerCertificates) > 0 {
		s.peer = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	a.mu.Lock()
	a.requests = append(a.requests, s)
	a.mu.Unlock()

	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[len(parts)-1]
	mediaType, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		http.Error(w, "not acceptable: "+mediaType, http.StatusNotAcceptable)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		a.serveWatch(w, r, resource, info)
		return
	}
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	if a.stored != nil {
		a.serveStored(w, r, info, encoder)
		return
	}
	w.Header().Set("Content-Type", info.MediaType)
	var obj runtime.Object
	switch resource {
	case "nodes":
		obj = &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: a.currentRV()}}
	default:
		obj = &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: a.currentRV()}}
	}
	_ = encoder.Encode(obj, w)
}

func (a *fakeAPI) serveStored(w http.ResponseWriter, r *http.Request, info runtime.SerializerInfo, encoder runtime.Encoder) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var body runtime.Object
	if strings.Contains(r.Header.Get("Content-Type"), "patch") {
		body = &runtime.Unknown{Raw: raw}
	} else if len(raw) > 0 {
		if body, _, err = scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", info.MediaType)
	_ = encoder.Encode(a.stored(r, body), w)
}

func (a *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request, resource string, info runtime.SerializerInfo) {
	fw := &fakeWatch{
		resource: resource, query: r.URL.RawQuery, events: make(chan watch.Event, 1024),
		end: make(chan struct{}), abort: make(chan struct{}), gone: make(chan struct{}),
	}
	defer close(fw.gone)
	contentType := info.MediaType
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	embedded := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	stream := scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, corev1.SchemeGroupVersion)
	enc := restwatch.NewEncoder(streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), stream), embedded)

	a.mu.Lock()
	a.watches = append(a.watches, fw)
	a.mu.Unlock()
	for {
		select {
		case e := <-fw.events:
			if err := enc.Encode(&e); err != nil {
				return
			}
			if err := flush(); err != nil {
				return
			}
			fw.mu.Lock()
			fw.written++
			fw.mu.Unlock()
		case <-fw.end:
			if len(fw.events) > 0 {
				continue // what was sent before the end goes out before it
			}
			return
		case <-fw.abort:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

func (a *fakeAPI) currentRV() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strconv.Itoa(a.rv)
}

// open returns the watches of a resource that the client may still be reading.
func (a *fakeAPI) open(resource string) []*fakeWatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*fakeWatch
	for _, w := range a.watches {
		select {
		case <-w.gone:
		default:
			if w.resource == resource {
				out = append(out, w)
			}
		}
	}
	return out
}

func (a *fakeAPI) everOpened() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches)
}

func (a *fakeAPI) requestsSeen() []seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]seen(nil), a.requests...)
}

// send puts an event on every open watch of the resource and returns its resource version.
func (a *fakeAPI) send(resource string, typ watch.EventType, name string) string {
	return a.sendPadded(resource, typ, name, 0, nil)
}

func (a *fakeAPI) sendPadded(resource string, typ watch.EventType, name string, padding int, annotations map[string]string) string {
	a.mu.Lock()
	a.rv++
	rv := strconv.Itoa(a.rv)
	a.mu.Unlock()
	if padding > 0 {
		annotations = map[string]string{"padding": strings.Repeat("x", padding)}
	}
	meta := metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: rv, Annotations: annotations}
	var obj runtime.Object = &corev1.Node{ObjectMeta: meta}
	if resource == "pods" {
		meta.Namespace = "default"
		obj = &corev1.Pod{ObjectMeta: meta}
	}
	for _, w := range a.open(resource) {
		w.events <- watch.Event{Type: typ, Object: obj.DeepCopyObject()} // encoding writes to it
	}
	return rv
}

// eventually polls a condition under a deadline that only a failing test reaches.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Fail(t, "timed out", "waiting until %s", what)
		}
	}
}
