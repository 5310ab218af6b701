// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slowdoor makes an apiserver slow for one client: each request but a watch is passed on late.
package slowdoor

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// Door stands before an apiserver.
type Door struct {
	listener net.Listener
	server   *http.Server
	delay    atomic.Int64
}

// Open opens a door on a loopback port before the apiserver at target. It delays nothing until SetDelay.
func Open(cert tls.Certificate, target string, roots *x509.CertPool) (*Door, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Door{listener: listener}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1, // a watch's events are passed on at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
	}
	d.server = &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ErrorLog:  proxy.ErrorLog,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if delay := time.Duration(d.delay.Load()); delay > 0 && r.URL.Query().Get("watch") == "" {
				select {
				case <-time.After(delay):
				case <-r.Context().Done():
					return
				}
			}
			proxy.ServeHTTP(w, r)
		}),
	}
	go func() { _ = d.server.ServeTLS(listener, "", "") }()
	return d, nil
}

// URL returns its address.
func (d *Door) URL() string { return "https://" + d.listener.Addr().String() }

// SetDelay changes by how much requests that come from now on are delayed.
func (d *Door) SetDelay(by time.Duration) { d.delay.Store(int64(by)) }

// Close ends it and what goes through it.
func (d *Door) Close() error { return d.server.Close() }
