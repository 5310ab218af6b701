// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
)

// replay is what a watch from a store's RV has shown so far.
type replay struct {
	fence Fence
	base  string   // the store's RV at the start
	rvs   []string // of the events up to the fence, in order
	ahead string   // of the first event past it
}

// last event's RV: a store that has passed it has all events up to the fence.
func (w *replay) last() string {
	if len(w.rvs) == 0 {
		return w.base
	}
	return w.rvs[len(w.rvs)-1]
}

// missing counts the events that a store at rv lacks, and names the first.
func (w *replay) missing(rv string) (int, string) {
	for i, event := range w.rvs {
		if !Passed(rv, event) {
			return len(w.rvs) - i, event
		}
	}
	return 0, ""
}

// proveByWatch asks for the events since the store's RV, up to the newest fence.
func (r *resource) proveByWatch(ctx context.Context, fl *flight[Proof], view cacheView) (proof Proof, f *failure) {
	t, f := r.p.admit(ctx, &r.watchBackoff, r)
	if f != nil {
		return Proof{}, f
	}
	start := time.Now()
	var w replay
	defer func() {
		if f != nil && f.reason == reasonGone {
			f.awaits = w.fence.ResourceVersion
		}
		t.end(ctx, f)
		r.p.opts.Metrics.Watch(r.gvr, time.Since(start))
	}()
	r.mu.Lock()
	base := r.sample()
	if len(r.fences) == 0 {
		r.mu.Unlock()
		return Proof{}, &failure{reason: ReasonRewind, err: errors.New("resource versions went backward after the fence")}
	}
	w = replay{fence: r.fences[len(r.fences)-1], base: base}
	// Under the lock, so that callers which join later see this time.
	fl.at = w.fence.TakenAt
	r.mu.Unlock()

	seconds, slack := WatchSeconds, r.slack()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+slack)
	defer cancel()
	stream, f := r.p.client.watch(ctx, r.gvr, w.base, seconds)
	if f != nil {
		return Proof{}, f
	}
	defer stream.Stop()

	caughtUp := make(chan struct{})
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if view.WaitFor(ctx, w.fence.ResourceVersion) == nil {
			close(caughtUp)
		}
	}()
	defer func() {
		cancel()
		<-waited
	}()
	proof, f = r.follow(ctx, stream, &w, caughtUp)
	r.cameLate(f, time.Since(start))
	return proof, f
}

func (r *resource) follow(ctx context.Context, stream watch.Interface, w *replay, caughtUp <-chan struct{}) (Proof, *failure) {
	var grace <-chan time.Time
	for {
		select {
		case event, open := <-stream.ResultChan():
			if !open {
				return Proof{}, &failure{reason: reasonNoBookmark, retryAfter: errorBackoff, err: fmt.Errorf("watch from %s ended without a bookmark at %s", w.base, w.fence.ResourceVersion)}
			}
			upTo, f := w.add(event)
			if f != nil {
				return Proof{}, f
			}
			if upTo != "" {
				return r.complete(ctx, w, upTo)
			}
			if grace == nil && len(w.rvs) > 0 {
				timer := time.NewTimer(passWait)
				defer timer.Stop()
				grace = timer.C
			}
		case <-grace:
			// The events came, and the store had time to show them. If it does, wait for the bookmark.
			if n, first := w.missing(r.storeRV()); n > 0 {
				return r.stale(methodWatch, n, first, w.fence), nil
			}
			grace = nil
		case <-caughtUp:
			caughtUp = nil
			if proof, ok := r.lookup(w.fence.TakenAt, methodWait); ok {
				return proof, nil
			}
		case <-ctx.Done():
			return Proof{}, &failure{reason: ReasonTimeout, retryAfter: errorBackoff, err: fmt.Errorf("watch from %s: %w", w.base, context.Cause(ctx))}
		}
	}
}

// add takes one event. It returns the RV up to which all events are known, once it
// is at the fence or past it.
func (w *replay) add(event watch.Event) (string, *failure) {
	if event.Type == watch.Error {
		return "", classify(apierrors.FromObject(event.Object), nil)
	}
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return "", refusal("a watch event without metadata: %w", err)
	}
	rv := m.GetResourceVersion()
	if !comparableRV(rv) {
		return "", &failure{reason: ReasonIncomparable, retryAfter: errorBackoff, err: fmt.Errorf("event's resource version %q cannot be compared", cut(rv))}
	}
	behind := Less(rv, w.fence.ResourceVersion)
	switch {
	case event.Type == watch.Bookmark && behind:
		return "", nil
	case event.Type == watch.Bookmark:
		return rv, nil
	case behind:
		w.rvs = append(w.rvs, rv)
		return "", nil
	case rv == w.fence.ResourceVersion:
		w.rvs = append(w.rvs, rv)
	}
	if !behind && rv != w.fence.ResourceVersion {
		w.ahead = rv
	}
	// An event past the fence shows only that all events up to the fence have come.
	return w.fence.ResourceVersion, nil
}

// complete decides once all events up to the fence are known.
func (r *resource) complete(ctx context.Context, w *replay, upTo string) (Proof, *failure) {
	last := w.last()
	if !Passed(r.storeRV(), last) {
		r.waitFor(ctx, last, passWait)
	}
	if n, first := w.missing(r.storeRV()); n > 0 {
		return r.stale(methodWatch, n, first, w.fence), nil
	}
	if r.settled(quiet{base: last, upTo: upTo}, w.fence) {
		if proof, ok := r.lookup(w.fence.TakenAt, methodWatch); ok {
			proof.Ahead = w.ahead
			return proof, nil
		}
	}
	return Proof{}, &failure{reason: ReasonRegressed, err: errors.New("the cache or the server went back during the watch")}
}

func (r *resource) storeRV() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sample()
}
