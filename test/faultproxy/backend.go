// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// watchStreamWindow is the flow-control window of one watch towards a backend: small, so that a backend soon
// feels that nobody reads. The connection's window stays at the transport's gigabyte, which more than ten
// thousand unread watches would be needed to fill.
const watchStreamWindow = 64 << 10

// backend is one apiserver with its transports, one set for each identity.
type backend struct {
	name      string
	url       *url.URL
	anonymous transports
	client    transports // with the client's certificate
}

// transports keeps watches apart from other requests, because they differ in their windows.
type transports struct{ watch, other *http.Transport }

func newBackend(b Backend, clientCert *tls.Certificate, conns *connSet) (*backend, error) {
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil, fmt.Errorf("backend %q: %w", b.Name, err)
	}
	out := &backend{name: b.Name, url: &url.URL{Scheme: u.Scheme, Host: u.Host}}
	make2 := func(certs []tls.Certificate) transports {
		return transports{watch: newTransport(b.CAs, certs, conns, watchStreamWindow), other: newTransport(b.CAs, certs, conns, 0)}
	}
	out.anonymous = make2(nil)
	if clientCert != nil {
		out.client = make2([]tls.Certificate{*clientCert})
	}
	return out, nil
}

func newTransport(cas *x509.CertPool, certs []tls.Certificate, conns *connSet, streamWindow int) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: cas, Certificates: certs, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return conns.track(c)
		},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		// The client's own Accept-Encoding is passed on; the proxy must not add one.
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow,
			// As client-go does, so that a dead backend is noticed here as the client would notice it.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
		},
	}
}

func (b *backend) closeIdle() {
	for _, t := range []*http.Transport{b.anonymous.watch, b.anonymous.other, b.client.watch, b.client.other} {
		if t != nil {
			t.CloseIdleConnections()
		}
	}
}

var errOtherIdentity = errors.New("the client certificate's subject is not the one this proxy speaks for")

// identity returns the transports that keep the request's identity.
func (p *Proxy) identity(b *backend, r *http.Request) (transports, error) {
	if r.Header.Get("Authorization") != "" || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return b.anonymous, nil
	}
	if p.clientSubject == nil || !bytes.Equal(p.clientSubject, r.TLS.VerifiedChains[0][0].RawSubject) {
		return transports{}, errOtherIdentity
	}
	return b.client, nil
}

// backendFailed tells the client that its request did not get through. Where it certainly was not executed
// that is an answer; otherwise the stream is cut, which leaves the outcome as open as a lost connection does.
func backendFailed(w http.ResponseWriter, r *http.Request, err error) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		panic(http.ErrAbortHandler)
	}
	a := answer{status: apierrors.NewServiceUnavailable("faultproxy: the backend does not accept connections").Status()}
	_ = a.write(w, r.Header.Get("Accept"))
}
