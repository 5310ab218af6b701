// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// RequestTime is what an undisturbed request takes, WatchTime an event on its way to a watch.
	RequestTime = 2 * time.Millisecond
	WatchTime   = 3 * time.Millisecond
	// progressEvery is how often the watch cache of a quiet resource learns how far the store is.
	progressEvery = time.Minute
)

// Fate is what becomes of a request.
type Fate struct {
	// Before and After are waits before the server sees it, and before the client sees the answer.
	Before, After time.Duration
	// Refusal, unless nil, is made by Refuse; the server does nothing then.
	Refusal error
	// Lost is an answer that the client never gets, although the server did what it was asked.
	Lost bool
}

// Server is the apiserver. It must be made and used in one bubble.
type Server struct {
	// Fate, unless nil, is asked about every request when it is sent. Observe, unless nil, is told of every
	// request before the server does what it asks (done false), while it holds its lock, and of the answer.
	Fate    func(*Request) Fate
	Observe func(truth Truth, r *Request, done bool)
	// Changed, unless nil, is told of every change, while the server holds its lock.
	Changed func(truth Truth, r *Resource, old, now Object)

	mu     sync.Mutex
	downs  int // steps under way in which nobody reaches it
	rv     int64
	n      int
	stores map[*Resource]*store
	owners map[types.NamespacedName]Owner // of pods, also of those that are gone
}

// store is the objects of a resource.
type store struct {
	*Resource
	objects map[types.NamespacedName]Object
	keys    []types.NamespacedName // sorted
	owned   map[Owner]map[types.NamespacedName]struct{}
	log     []change
	// known is the version that the resource's watch cache knows to be complete, at knownAt.
	known   int64
	knownAt time.Time
	// compacted is the lowest version that a watch may begin at.
	compacted int64
	streams   map[*stream]struct{}
	held      bool
	// lagsAt, unless 0, is the version at which the apiserver stands still that new clients come to.
	lagsAt int64
	late   time.Duration
	drop   func(Object) bool
}

type change struct {
	rv       int64
	at       time.Time
	old, now Object // now is nil once it is gone
	last     Object // as deleted
}

// New returns an empty server.
func New() *Server {
	s := &Server{rv: 1000, stores: map[*Resource]*store{}, owners: map[types.NamespacedName]Owner{}}
	for _, r := range all {
		s.stores[r] = &store{Resource: r, objects: map[types.NamespacedName]Object{}, owned: map[Owner]map[types.NamespacedName]struct{}{}, known: s.rv, knownAt: time.Now(), streams: map[*stream]struct{}{}}
	}
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := parse(req)
	if err != nil {
		return answer(req, r, nil, Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, err.Error(), 0)), nil
	}
	if s.Fate != nil || s.Observe != nil {
		s.mu.Lock()
		r.Owner = s.ownerOf(r)
		s.mu.Unlock()
	}
	var fate Fate
	if s.Fate != nil {
		fate = s.Fate(r)
	}
	if err := sleep(ctx, RequestTime+fate.Before); err != nil {
		return nil, err
	}
	body, err := s.serve(ctx, r, fate)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := sleep(ctx, fate.After); err != nil {
		return nil, err
	}
	if fate.Lost {
		return nil, syscall.ECONNRESET
	}
	return answer(req, r, body, err), nil
}

// serve does what is asked, at once.
func (s *Server) serve(ctx context.Context, r *Request, fate Fate) (body io.ReadCloser, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.downs > 0 {
		return nil, syscall.ECONNREFUSED
	}
	r.Arrived = time.Now()
	if s.Observe != nil {
		s.Observe(Truth{s}, r, false)
		defer func() { s.Observe(Truth{s}, r, true) }()
	}
	rv := s.rv
	defer func() {
		r.Changed = r.Write() && s.rv != rv
		r.Code = http.StatusOK
		var refused *refusal
		if errors.As(err, &refused) {
			r.Code = int(refused.Code)
		}
		if fate.Lost {
			r.Code = 0
		}
	}()
	if fate.Refusal != nil {
		return nil, fate.Refusal
	}
	switch r.Verb {
	case "watch":
		return s.watch(ctx, r)
	case "list":
		data, err := s.list(r)
		return io.NopCloser(bytes.NewReader(data)), err
	case "get":
		o, err := s.get(r)
		if err != nil {
			return nil, err
		}
		if r.Subresource == scaleOf {
			scale, err := r.scale(o)
			return io.NopCloser(bytes.NewReader(scale)), err
		}
		return io.NopCloser(bytes.NewReader(r.encoding.object(o))), nil
	}
	data, err := s.write(r)
	return io.NopCloser(bytes.NewReader(data)), err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func answer(req *http.Request, r *Request, body io.ReadCloser, err error) *http.Response {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: req, ProtoMajor: 1, ProtoMinor: 1}
	var e encoding
	if r != nil {
		e = r.encoding
		if r.Verb == "create" {
			resp.StatusCode = http.StatusCreated
		}
	}
	var refused *refusal
	if errors.As(err, &refused) {
		resp.StatusCode = int(refused.Code)
		resp.Body = io.NopCloser(bytes.NewReader(e.encode(&refused.Status)))
		if refused.retryAfter > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(refused.retryAfter))
		}
	} else if err != nil {
		panic(err)
	}
	resp.Status = http.StatusText(resp.StatusCode)
	resp.Header.Set("Content-Type", e.contentType())
	return resp
}
