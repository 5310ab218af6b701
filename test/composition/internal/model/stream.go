// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is an open watch. What it brings is made when it is read.
type stream struct {
	s      *Server
	st     *store
	r      *Request
	ctx    context.Context
	sel    func(Object) bool
	prover bool

	next    int // of the store's log
	sent    int64
	initial []Object
	listed  bool // the initial events have ended, or were not asked for
	listRV  int64

	deadline, bookmark time.Time
	lags               bool // it began while its apiserver stood still
	end                bool
	goneRV             bool
	notify             chan struct{}
	closed             chan struct{}
	buf                []byte
}

// watch opens a stream.
func (s *Server) watch(ctx context.Context, r *Request) (io.ReadCloser, error) {
	st := s.stores[r.Resource]
	sel, err := selector(r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	w := &stream{s: s, st: st, r: r, ctx: ctx, sel: sel, prover: Probe(r), listed: true,
		notify: make(chan struct{}, 1), closed: make(chan struct{}), bookmark: now.Add(progressEvery)}
	if seconds := r.number("timeoutSeconds"); seconds > 0 {
		w.deadline = now.Add(time.Duration(seconds) * time.Second)
		// kube-apiserver sends the last bookmark some time before the end.
		if last := w.deadline.Add(-1300 * time.Millisecond); last.Before(w.bookmark) {
			w.bookmark = last
		}
	}
	rv := r.number("resourceVersion")
	w.lags = st.lagsAt > 0 && !w.prover
	if r.query.Get("sendInitialEvents") == "true" {
		st.progress(s.rv)
		if rv = s.rv; w.lags {
			rv = st.lagsAt
		}
		w.initial, w.listed, w.listRV = slices.Collect(st.asOf(rv, s.rv)), false, rv
	}
	if rv < st.compacted && !(w.lags && rv >= st.lagsAt) { // An apiserver that stands still has what it stands at.
		return nil, Refuse(http.StatusGone, metav1.StatusReasonExpired, "too old resource version", 0)
	}
	w.sent = rv
	for w.next < len(st.log) && st.log[w.next].rv <= rv {
		w.next++
	}
	st.streams[w] = struct{}{}
	return w, nil
}

// Probe says that a request is one of the prover, and not of a controller.
func Probe(r *Request) bool { return strings.HasSuffix(r.Agent, " freshness") }

func (w *stream) wake() {
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *stream) Read(p []byte) (int, error) {
	for {
		if len(w.buf) > 0 {
			n := copy(p, w.buf)
			w.buf = w.buf[n:]
			return n, nil
		}
		w.s.mu.Lock()
		wait, more := w.fill(time.Now())
		w.s.mu.Unlock()
		if len(w.buf) > 0 {
			continue
		}
		if !more {
			return 0, io.EOF
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-w.notify:
		case <-w.ctx.Done():
			t.Stop()
			return 0, w.ctx.Err()
		case <-w.closed:
			t.Stop()
			return 0, io.EOF
		}
		t.Stop()
	}
}

// fill encodes what is due, or says for how long to wait, and whether there is more to come.
func (w *stream) fill(now time.Time) (wait time.Duration, more bool) {
	if w.end || !w.deadline.IsZero() && !now.Before(w.deadline) {
		return 0, false
	}
	e := w.r.encoding
	if w.st.held && !w.prover {
		return w.until(now, time.Hour), true
	}
	if w.goneRV {
		w.end = true
		refused := Refuse(http.StatusGone, metav1.StatusReasonExpired, "too old resource version", 0).(*refusal)
		w.buf = append(w.buf, e.frame(watch.Error, e.encode(&refused.Status))...)
		return 0, false
	}
	if !w.listed {
		for _, o := range w.initial {
			if w.sel(o) {
				w.buf = append(w.buf, e.frame(watch.Added, e.object(o))...)
			}
		}
		w.listed, w.initial = true, nil
		w.mark(w.listRV, true)
		return 0, true
	}
	if w.lags = w.lags && w.st.lagsAt > 0; w.lags {
		return w.until(now, time.Hour), true
	}
	for w.next < len(w.st.log) {
		c := w.st.log[w.next]
		if due := c.at.Add(WatchTime + w.st.late); now.Before(due) {
			return w.until(now, due.Sub(now)), true
		}
		w.next++
		w.sent = c.rv
		o := c.now
		if o == nil {
			o = c.last
		}
		if !w.sel(o) {
			continue
		}
		if !w.prover && w.st.drop != nil && w.st.drop(o) {
			continue
		}
		t := watch.Modified
		switch {
		case c.now == nil:
			t = watch.Deleted
		case c.old == nil:
			t = watch.Added
		}
		w.buf = append(w.buf, e.frame(t, e.object(o))...)
	}
	if len(w.buf) > 0 {
		return 0, true
	}
	if !now.Before(w.bookmark) {
		w.bookmark = now.Add(progressEvery)
		if now.Sub(w.st.knownAt) >= progressEvery {
			w.st.progress(w.s.rv)
		}
		if w.st.known > w.sent && w.r.query.Get("allowWatchBookmarks") == "true" {
			w.mark(w.st.known, false)
			return 0, true
		}
	}
	return w.until(now, w.bookmark.Sub(now)), true
}

func (w *stream) until(now time.Time, wait time.Duration) time.Duration {
	if !w.deadline.IsZero() {
		wait = min(wait, w.deadline.Sub(now))
	}
	return wait
}

// mark encodes a bookmark.
func (w *stream) mark(rv int64, initial bool) {
	w.sent = max(w.sent, rv)
	o := reflect.New(w.st.object).Interface().(Object)
	o.GetObjectKind().SetGroupVersionKind(w.st.gvk())
	o.SetResourceVersion(strconv.FormatInt(rv, 10))
	if initial {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	w.buf = append(w.buf, w.r.encoding.frame(watch.Bookmark, w.r.encoding.object(o))...)
}

// Close implements io.Closer.
func (w *stream) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if _, open := w.st.streams[w]; open {
		delete(w.st.streams, w)
		close(w.closed)
	}
	return nil
}
