// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peerlink stands between the members of an etcd cluster: each advertises the URL of a proxy in front of it, and the
// proxies can hold back what one member sends to another. A member to which nothing comes lags behind the others; a leader to which
// nothing comes cannot learn that anything was committed, though the others have it. All a member serves to its clients stays as it is.
//
// Members name themselves in their requests by the URL that they advertise. What one sends to another are the requests that it
// makes there, and the answers to those of the other, which are streams.
package peerlink

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
	"slices"
	"sync"
)

// sender is the header with the URL of the member that makes a request.
const sender = "X-PeerURLs"

// Links are the proxies of one etcd cluster. Its methods may be called from any goroutine.
type Links struct {
	urls    []string
	servers []*http.Server
	cancel  context.CancelFunc

	mu      sync.Mutex
	targets []*url.URL
	held    map[link]chan struct{} // closed once nothing is held any more
	pieces  int
}

// link is a direction: what one member sends to another.
type link struct{ from, to int }

// Start starts a proxy for each of so many members. pkiDir holds etcd.crt and .key, with which all members serve and
// authenticate, and etcd-ca.crt.
func Start(members int, pkiDir string) (_ *Links, err error) {
	file := func(name string) string { return filepath.Join(pkiDir, name) }
	pair, err := tls.LoadX509KeyPair(file("etcd.crt"), file("etcd.key"))
	if err != nil {
		return nil, fmt.Errorf("peerlink: %w", err)
	}
	ca, err := os.ReadFile(file("etcd-ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("peerlink: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	ctx, cancel := context.WithCancel(context.Background())
	l := &Links{cancel: cancel, targets: make([]*url.URL, members), held: map[link]chan struct{}{}}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	for member := range members {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("peerlink: %w", err)
		}
		l.urls = append(l.urls, "https://"+listener.Addr().String())
		silent := log.New(io.Discard, "", 0)
		server := &http.Server{
			Handler: l.handler(member, &httputil.ReverseProxy{
				Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(l.target(member)) },
				Transport:      &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}},
				FlushInterval:  -1,
				ErrorLog:       silent,
				ModifyResponse: func(res *http.Response) error { return l.holdAnswer(member, res) },
			}),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert},
			// The members speak HTTP/1.1, in which each stream has a connection of its own.
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
			ErrorLog:     silent,
			BaseContext:  func(net.Listener) context.Context { return ctx },
		}
		l.servers = append(l.servers, server)
		go func() {
			if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
				log.Printf("peerlink: serving ended: %v", err)
			}
		}()
	}
	return l, nil
}

// URL is what a member advertises to the others.
func (l *Links) URL(member int) string { return l.urls[member] }

// Serve says where a member listens.
func (l *Links) Serve(member int, at string) {
	target, err := url.Parse(at)
	if err != nil {
		panic(err) // It is made of an address that is listened on.
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets[member] = target
}

func (l *Links) target(member int) *url.URL {
	l.mu.Lock()
	defer l.mu.Unlock()
	if target := l.targets[member]; target != nil {
		return target
	}
	return &url.URL{Scheme: "https", Host: "127.0.0.1:1"} // Nobody is there yet.
}

// HoldTo keeps back what the other members send to one from now on, until Release.
func (l *Links) HoldTo(member int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from := range l.urls {
		if at := (link{from, member}); from != member && l.held[at] == nil {
			l.held[at] = make(chan struct{})
		}
	}
}

// Release lets everything go.
func (l *Links) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.held {
		close(held)
	}
	clear(l.held)
}

// Held is how many pieces of streams, and requests, were kept back so far.
func (l *Links) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pieces
}

// Close ends it.
func (l *Links) Close() {
	l.Release()
	l.cancel()
	for _, server := range l.servers {
		_ = server.Close()
	}
}

// wait returns once nothing is held in a direction, or with the context's error.
func (l *Links) wait(ctx context.Context, at link) error {
	for counted := false; ; counted = true {
		l.mu.Lock()
		held := l.held[at]
		if held != nil && !counted {
			l.pieces++
		}
		l.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// from returns which member makes a request, and whether it says so.
func (l *Links) from(r *http.Request) (member int, ok bool) {
	member = slices.Index(l.urls, r.Header.Get(sender))
	return member, member >= 0
}

// handler holds requests back.
func (l *Links) handler(to int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, ok := l.from(r); ok && r.Method == http.MethodPost {
			if l.wait(r.Context(), link{from, to}) != nil {
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// holdAnswer holds the answer of a member to another one back.
func (l *Links) holdAnswer(member int, res *http.Response) error {
	if to, ok := l.from(res.Request); ok {
		res.Body = &heldBody{ReadCloser: res.Body, links: l, at: link{member, to}, ctx: res.Request.Context()}
	}
	return nil
}

// heldBody hands on what it has read only while nothing is held.
type heldBody struct {
	io.ReadCloser
	links *Links
	at    link
	ctx   context.Context
}

func (b *heldBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if held := b.links.wait(b.ctx, b.at); held != nil {
		return 0, held
	}
	return n, err
}
