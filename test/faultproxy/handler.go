// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// ServeHTTP is the client's side of the proxy; it is exported only to satisfy http.Handler.
func (p *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.proxy.serve(w, r)
}

type handler struct{ proxy *Proxy }

func (p *Proxy) serve(rw http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.inflight.Done()

	req, err := parseRequest(r)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w := &countingWriter{ResponseWriter: rw, count: func(code int) { p.counter.add(req, code) }}
	defer w.once(0)

	faults, backend := p.match(req)
	for _, f := range faults {
		if f.b.answers == nil {
			continue
		}
		if a := f.b.answers(req); a != nil && f.take() {
			f.didRequest(ActionAnswered, req)
			if err := a.write(w, r.Header.Get("Accept")); err != nil {
				klog.FromContext(r.Context()).V(2).Info("The client did not take an injected answer", "fault", f.id, "err", err)
			}
			return
		}
	}
	via, err := p.identity(backend, r)
	if err != nil {
		a := answer{status: apierrors.NewUnauthorized("faultproxy: " + err.Error()).Status()}
		_ = a.write(w, r.Header.Get("Accept"))
		return
	}
	if p.wasOpaque(req.Resource) {
		if err := restoreRequest(r); err != nil {
			a := answer{status: apierrors.NewBadRequest("faultproxy: " + err.Error()).Status()}
			_ = a.write(w, r.Header.Get("Accept"))
			return
		}
	}
	if req.Verb == "watch" {
		p.serveWatch(w, r, req, backend, via.watch)
		return
	}
	p.serveOther(w, r, req, faults, backend, via.other)
}

func (p *Proxy) serveOther(w http.ResponseWriter, r *http.Request, req Request, faults []*Fault, b *backend, via http.RoundTripper) {
	rp := &httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { pr.SetURL(b.url) },
		Transport:     via,
		FlushInterval: -1, // pod logs and other streams
		ErrorLog:      p.errorLog,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.logBackendError(r, req, b, err)
			backendFailed(w, r, err)
		},
	}
	opaque := opaqueFaults(faults)
	if len(opaque) > 0 {
		r.Header.Del("Accept-Encoding") // to read the answer
	}
	if req.Verb == "list" || len(opaque) > 0 {
		rp.ModifyResponse = func(res *http.Response) error {
			if err := makeResponseOpaque(res, opaque, req); err != nil {
				return err
			}
			for _, f := range faults {
				if !f.b.holdsLists || req.Verb != "list" {
					continue
				}
				f.didRequest(ActionHeld, req)
				select {
				case <-f.cleared:
					f.didRequest(ActionReleased, req)
				case <-res.Request.Context().Done():
					return context.Cause(res.Request.Context())
				}
			}
			return nil
		}
	}
	for _, f := range faults {
		if f.b.cuts != nil && f.b.cuts(req) {
			next := rp.ModifyResponse
			rp.ModifyResponse = func(res *http.Response) error {
				if next != nil {
					if err := next(res); err != nil {
						return err
					}
				}
				return f.cutAnswer(res, req)
			}
		}
	}
	for _, f := range faults {
		if f.b.loses != nil && f.b.loses(req) && f.take() {
			rp.ModifyResponse = func(*http.Response) error {
				f.didRequest(ActionDropped, req)
				return errAnswerLost
			}
			break
		}
	}
	rp.ServeHTTP(w, r)
}

var errAnswerLost = errors.New("the answer is lost")

// hopByHop are the headers that belong to one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHopByHop(h http.Header) {
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

func (p *Proxy) serveWatch(w http.ResponseWriter, r *http.Request, req Request, b *backend, via http.RoundTripper) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := r.Clone(ctx)
	out.RequestURI, out.Host, out.Body, out.ContentLength = "", "", nil, 0
	out.URL.Scheme, out.URL.Host = b.url.Scheme, b.url.Host
	dropHopByHop(out.Header)
	// The apiserver may compress a WatchList stream; the proxy has to see the frames.
	out.Header.Del("Accept-Encoding")
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "")
	}

	res, err := via.RoundTrip(out)
	if err != nil {
		if ctx.Err() == nil {
			p.logBackendError(r, req, b, err)
		}
		backendFailed(w, r, err)
		return
	}
	defer res.Body.Close()
	dropHopByHop(res.Header)
	maps.Copy(w.Header(), res.Header)
	if res.StatusCode != http.StatusOK {
		w.WriteHeader(res.StatusCode)
		if _, err := io.Copy(w, res.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	w.Header().Del("Content-Length")
	contentType := res.Header.Get("Content-Type")
	s := p.open(req, b, wantsProtobuf(contentType), cancel)
	defer p.drop(s)
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		s.read(ctx, contentType, res.Body)
	}()
	defer func() {
		cancel()
		<-readerDone
	}()
	s.write(r.Context(), w)
}

func (p *Proxy) logBackendError(r *http.Request, req Request, b *backend, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	klog.FromContext(r.Context()).V(2).Info("Request to the backend failed", "backend", b.name, "verb", req.Verb, "resource", req.Resource, "err", fmt.Sprint(err))
}
