// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
)

const (
	// silentFor is how long nothing may have come of a watch that is ended. One that brings something is not
	// held back, but slow, or brings a first list.
	silentFor = 5 * time.Second
	// minEndInterval and maxEndInterval bound how soon the watches of a resource are ended again; the interval
	// doubles while its cache stays stalled.
	minEndInterval = 30 * time.Second
	maxEndInterval = 5 * time.Minute
	// healedAfter is for how long a cache must not have been stalled for the interval to be the least again.
	healedAfter = 10 * time.Second
)

// errWatchEnded is why the request of a watch was given up.
var errWatchEnded = errors.New("the watch is stalled")

// Watches are the open watches of the informers, so that one that is stalled can be ended: the reflector
// takes that for the end that every watch has after 5 to 10 min, and takes up a new one from where its cache
// is. All methods may be called concurrently.
type Watches struct {
	silent time.Duration // silentFor, but in tests

	mu      sync.Mutex
	open    map[schema.GroupVersionResource]map[*watchBody]struct{}
	ends    map[schema.GroupVersionResource]*endings
	expired map[schema.GroupVersionResource]expiry
}

// expiry counts the informers of a resource whose watches were ended for them to relist.
type expiry struct {
	// resuming will take up a watch again, which is to be answered with 410. Those that list by themselves have no need of it.
	resuming int
	// told were answered so, and will list.
	told int
}

// endings are when the watches of a resource were and may be ended.
type endings struct {
	// asked is when the cache was last said to be stalled.
	asked, last time.Time
	interval    time.Duration
	n           int
}

// NewWatches returns an empty set.
func NewWatches() *Watches {
	return &Watches{silent: silentFor, open: map[schema.GroupVersionResource]map[*watchBody]struct{}{}, ends: map[schema.GroupVersionResource]*endings{},
		expired: map[schema.GroupVersionResource]expiry{}}
}

// Clients returns a builder whose clients' watches are in the set. It is meant for the informers' clients only.
func (w *Watches) Clients(builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
	return wrappedBuilder{builder, func(next http.RoundTripper, at endpoint, _ string) http.RoundTripper { return watching{next, at, w} }}
}

// End ends those watches of a resource that have brought nothing for silentFor, and returns how many there
// were. It is called again and again while the cache of the resource is stalled, and does nothing if the last
// end was too short a time ago: an apiserver must not be flooded with new watches. If a watch that was taken up
// after that has brought nothing at all, its informer relists, if relist is true: a watch that resumes behind a lost event never
// brings it. It must be false if other watches, too, may bring nothing: the server would be made to list for nothing.
func (w *Watches) End(ctx context.Context, resource schema.GroupVersionResource, relist bool) int {
	now := time.Now()
	w.mu.Lock()
	// What was stalled so long ago is as if it never was.
	maps.DeleteFunc(w.ends, func(_ schema.GroupVersionResource, e *endings) bool { return now.Sub(e.asked) > maxEndInterval })
	e := w.ends[resource]
	if e == nil {
		e = &endings{}
		w.ends[resource] = e
	}
	if now.Sub(e.asked) > healedAfter {
		e.interval, e.n = 0, 0
	}
	e.asked = now
	if !e.last.IsZero() && now.Sub(e.last) < max(e.interval, minEndInterval) {
		w.mu.Unlock()
		return 0
	}
	var silent []*watchBody
	for b := range w.open[resource] {
		if !b.ended.Load() && w.silentAt(b, now) {
			silent = append(silent, b)
		}
	}
	if len(silent) == 0 {
		w.mu.Unlock()
		return 0
	}
	e.last, e.interval = now, min(max(2*e.interval, minEndInterval), maxEndInterval)
	e.n++
	n, again := e.n, e.interval
	relists := 0
	for _, b := range silent {
		if b.relists = relist && n > 1 && b.bytes.Load() == 0; b.relists {
			relists++
		}
	}
	w.relist(resource, relists)
	w.mu.Unlock()
	for _, b := range silent {
		purpose := "Ended a stalled watch; the informer opens a new one"
		switch {
		case b.relists:
			purpose = "Ended a new watch that is stalled as well; the informer relists"
		case n > 1 && b.bytes.Load() == 0:
			purpose = "Ended a new watch that is stalled as well; the informer opens another one, since no other watch has brought what the cache lacks"
		}
		klog.FromContext(ctx).Info(purpose, "resource", resource,
			"silent", now.Sub(b.lastRead()).Round(time.Millisecond), "open", now.Sub(b.opened).Round(time.Millisecond),
			"bytes", b.bytes.Load(), "times", n, "notAgainFor", again)
		b.end()
	}
	return len(silent)
}

// Relist has the informers of one resource relist: it ends their watches, and answers the next ones, which begin where
// the caches are, with 410 Gone. It returns how many it ended. It spares a watch that was asked for since then and begins with a list, unless
// that has brought nothing for silentFor: a long list would never end if it was begun again each time that somebody asks.
func (w *Watches) Relist(resource schema.GroupResource, since time.Time) (ended int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for gvr, of := range w.open {
		if gvr.GroupResource() != resource {
			continue
		}
		n := 0
		for b := range of {
			if !b.ended.Load() && (!b.lists || b.opened.Before(since) || w.silentAt(b, now)) {
				b.end()
				n++
			}
		}
		w.relist(gvr, n)
		ended += n
	}
	return ended
}

// silentAt reports whether a watch has brought nothing for silentFor.
func (w *Watches) silentAt(b *watchBody, now time.Time) bool {
	return now.Sub(b.lastRead()) >= w.silent
}

// relist notes that watches were ended for their informers to relist.
func (w *Watches) relist(resource schema.GroupVersionResource, watches int) {
	if e := w.expired[resource]; watches > 0 {
		e.resuming += watches
		w.expired[resource] = e
	}
}

// expire reports whether a watch is to be answered with 410. It is told of each list that begins, too: none is asked for after that.
func (w *Watches) expire(resource schema.GroupVersionResource, lists bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, gone := w.expired[resource], false
	switch {
	case lists && e.told > 0:
		e.told--
	case e.resuming == 0:
		return false
	default:
		e.resuming--
		if gone = !lists; gone {
			e.told++
		}
	}
	if w.expired[resource] = e; e == (expiry{}) {
		delete(w.expired, resource)
	}
	return gone
}

// gone is the answer to a watch that begins too far back.
func gone(req *http.Request) (*http.Response, error) {
	status := apierrors.NewResourceExpired("the informer is to relist").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

func (w *Watches) add(b *watchBody) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.open[b.resource]
	if of == nil {
		of = map[*watchBody]struct{}{}
		w.open[b.resource] = of
	}
	of[b] = struct{}{}
}

func (w *Watches) remove(b *watchBody) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open[b.resource], b)
	if len(w.open[b.resource]) == 0 {
		delete(w.open, b.resource)
	}
}

// watching is a transport that puts the watches of whole collections into the set.
type watching struct {
	next http.RoundTripper
	at   endpoint
	set  *Watches
}

// RoundTrip implements http.RoundTripper.
func (t watching) RoundTrip(req *http.Request) (*http.Response, error) {
	info := t.at.resource(req)
	q := req.URL.Query()
	if info == nil || info.Verb != "watch" && info.Verb != "list" || info.Namespace != metav1.NamespaceAll || info.Name != "" || info.Subresource != "" || q.Get("continue") != "" {
		return t.next.RoundTrip(req)
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	from := q.Get("resourceVersion")
	lists := info.Verb == "list" || q.Get("sendInitialEvents") == "true" || from == "" || from == "0"
	if t.set.expire(resource, lists) {
		return gone(req)
	}
	if info.Verb == "list" {
		return t.next.RoundTrip(req)
	}
	opened := time.Now()
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return resp, err
	}
	now := time.Now()
	b := &watchBody{
		ReadCloser: resp.Body, set: t.set, opened: opened, cancel: cancel,
		resource: resource, lists: lists,
	}
	b.read.Store(&now)
	resp.Body = b
	if resp.StatusCode == http.StatusOK {
		t.set.add(b)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t watching) WrappedRoundTripper() http.RoundTripper { return t.next }

// watchBody is the body of a watch, which can be made to end.
type watchBody struct {
	io.ReadCloser
	set      *Watches
	resource schema.GroupVersionResource
	opened   time.Time // when it was asked for
	lists    bool      // it begins with all objects
	cancel   context.CancelCauseFunc
	// relists is set by End for one whose informer is to relist.
	relists bool

	ended atomic.Bool
	read  atomic.Pointer[time.Time]
	bytes atomic.Int64
}

// Read implements io.Reader. A body that was ended ends as one that the server has ended.
func (b *watchBody) Read(p []byte) (int, error) {
	if b.ended.Load() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		now := time.Now()
		b.read.Store(&now)
		b.bytes.Add(int64(n))
	}
	if err != nil && b.ended.Load() {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.set.remove(b)
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// end has a Read that waits return io.EOF. Giving the request up is what may be done while another goroutine
// reads, in HTTP/1 and HTTP/2.
func (b *watchBody) end() {
	b.ended.Store(true)
	b.cancel(errWatchEnded)
}

// lastRead is when the body last brought something, or was opened.
func (b *watchBody) lastRead() time.Time { return *b.read.Load() }
