// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lag makes one apiserver lag behind etcd: it stands between the two and can hold back what etcd says
// on watches, while reads and writes pass. The apiserver then serves from watch caches that stand still, as
// one does that cannot keep up, and still answers consistent reads with the truth.
package lag

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
)

// watchPath is etcd's gRPC method for watches.
const watchPath = "/etcdserverpb.Watch/Watch"

// Proxy is one running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	url    string
	server *http.Server
	cancel context.CancelFunc

	mu   sync.Mutex
	open chan struct{} // closed while watches flow
	held int
}

// Start starts a proxy in front of the etcd at this URL. pkiDir holds etcd.crt and .key, etcd-ca.crt and
// apiserver-etcd-client.crt and .key, as test/controlplane makes them.
func Start(etcdURL, pkiDir string) (*Proxy, error) {
	target, err := url.Parse(etcdURL)
	if err != nil {
		return nil, fmt.Errorf("lag: etcd's URL: %w", err)
	}
	serving, err := pair(pkiDir, "etcd")
	if err != nil {
		return nil, err
	}
	client, err := pair(pkiDir, "apiserver-etcd-client")
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(pkiDir, "etcd-ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("lag: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lag: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	open := make(chan struct{})
	close(open)
	p := &Proxy{url: "https://" + listener.Addr().String(), cancel: cancel, open: open}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}}},
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: p.slow,
	}
	p.server = &http.Server{
		Handler:     forward,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}},
		ErrorLog:    forward.ErrorLog,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		if err := p.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("lag: serving ended: %v", err)
		}
	}()
	return p, nil
}

func pair(dir, name string) (tls.Certificate, error) {
	out, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return out, fmt.Errorf("lag: %w", err)
	}
	return out, nil
}

// URL is where the apiserver finds it.
func (p *Proxy) URL() string { return p.url }

// Hold keeps back what etcd says on watches from now on, until Release.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Release lets everything go that was held, in order.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// Held is how many pieces of watch streams were kept back so far.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Close ends it.
func (p *Proxy) Close() {
	p.Release()
	p.cancel()
	_ = p.server.Close()
}

func (p *Proxy) slow(res *http.Response) error {
	if res.Request.URL.Path == watchPath {
		res.Body = &slowBody{ReadCloser: res.Body, proxy: p, ctx: res.Request.Context()}
	}
	return nil
}

// slowBody hands on what it has read only while watches flow.
type slowBody struct {
	io.ReadCloser
	proxy *Proxy
	ctx   context.Context
}

func (b *slowBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	for {
		b.proxy.mu.Lock()
		open := b.proxy.open
		b.proxy.mu.Unlock()
		select {
		case <-open:
			return n, err
		default:
		}
		b.proxy.mu.Lock()
		b.proxy.held++
		b.proxy.mu.Unlock()
		select {
		case <-open:
		case <-b.ctx.Done():
			return 0, context.Cause(b.ctx)
		}
	}
}
