// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// slowestBookmark is when kube-apiserver sends the bookmark of a watch of 3 s at the latest: 2 s before the end, and it
// looks once a second.
const slowestBookmark = 2250 * time.Millisecond

// large is a size of a collection that is not listed.
const large = 1000

// world is a server, one informer's cache of one resource, and a prover that knows both.
type world struct {
	gvr schema.GroupVersionResource
	m   *Monitor // gets fences

	mu sync.Mutex
	// server is the RV that a fence returns; changed the RV of the resource's last change.
	server, changed  int
	changes          []int
	stored           int
	received         int
	size             int
	fences           []freshness.Fence
	quietUpTo        int
	epoch            uint64 // of the server
	rewound          bool   // since the cache was listed
	failure          *freshness.Error
	answerAfter      time.Duration // of fences and lists
	answerWatchAfter time.Duration
	requestCounts
	asked   []time.Time
	objects cache.Store
	moves   bool // the cache follows at once
	// joined: a watch is not made, as a list of others is under way; mute: it brings nothing.
	joined, mute bool
	end, begin   func() // the informer is gone, or back
}

type requestCounts struct{ fenced, listed, watched int }

func (c requestCounts) all() int { return c.fenced + c.listed + c.watched }

func newWorld() *world {
	return &world{gvr: pods, server: 100, changed: 100, stored: 100, received: 100, size: large, moves: true, answerWatchAfter: 1700 * time.Millisecond, objects: cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

type face struct {
	cache.Store
	w *world
}

func (f face) LastStoreSyncResourceVersion() string {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return rv(f.w.stored)
}

// List returns the object of the change that took the store where it is, if it was one.
func (f face) List() []any {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !slices.Contains(f.w.changes, f.w.stored) {
		return nil
	}
	return []any{&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv(f.w.stored)}}}
}

func (f face) ListKeys() []string {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return make([]string, f.w.size)
}

func rv(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (w *world) GetStore() cache.Store { return face{w.objects, w} }

func (w *world) LastSyncResourceVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rv(w.received)
}

// change makes n changes of the resource, and returns the RV of the last.
func (w *world) change(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server += n
	w.changed = w.server
	if w.changes = append(w.changes, w.changed); len(w.changes) > 1000 {
		w.changes = slices.Clone(w.changes[500:])
	}
	if w.moves {
		w.stored, w.received = w.changed, w.changed
	}
	return w.changed
}

// next is the first change after an RV, 0 if none is known.
func (w *world) next(stored int) int {
	for _, at := range w.changes {
		if at > stored {
			return at
		}
	}
	return 0
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// requests returns how many there were of each kind.
func (w *world) requests() requestCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requestCounts
}

// answer waits for the answer to a request.
func (w *world) answer(after time.Duration) {
	w.mu.Lock()
	w.asked = append(w.asked, time.Now())
	w.mu.Unlock()
	time.Sleep(after)
}

func (w *world) Fence(context.Context, schema.GroupVersionResource) (freshness.Fence, error) {
	w.mu.Lock()
	after := w.answerAfter
	w.mu.Unlock()
	w.answer(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced++
	if w.failure != nil {
		return freshness.Fence{}, w.failure
	}
	f := freshness.Fence{ResourceVersion: rv(w.server), TakenAt: time.Now(), Epoch: w.epoch}
	w.note(f)
	if w.size == 0 && w.stored >= w.changed {
		w.quietUpTo = w.server // That nothing comes is the proof.
	}
	return f, nil
}

func (w *world) note(f freshness.Fence) {
	if w.fences = append(w.fences, f); len(w.fences) > 32 {
		w.fences = slices.Clone(w.fences[16:])
	}
}

func (w *world) Known(schema.GroupVersionResource) (freshness.Proof, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known()
}

func (w *world) known() (freshness.Proof, bool) {
	if w.rewound {
		return freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonRewind}, false
	}
	for i := len(w.fences) - 1; i >= 0; i-- {
		f := w.fences[i]
		if freshness.Passed(rv(w.stored), f.ResourceVersion) || freshness.Passed(rv(w.quietUpTo), f.ResourceVersion) {
			return freshness.Proof{Outcome: freshness.Proven, At: f.TakenAt, ResourceVersion: f.ResourceVersion}, true
		}
	}
	return freshness.Proof{}, false
}

func (w *world) AwaitFence(_ context.Context, gvr schema.GroupVersionResource, asOf time.Time, wait time.Duration) (freshness.Proof, bool) {
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if proof, ok := w.Known(gvr); ok && !proof.At.Before(asOf) {
			return proof, true
		}
		if !time.Now().Before(end) {
			return freshness.Proof{}, false
		}
	}
}

func (w *world) ProveByList(_ context.Context, gvr schema.GroupVersionResource, _ time.Time, wait time.Duration) (freshness.Proof, error) {
	w.mu.Lock()
	after := w.answerAfter
	w.mu.Unlock()
	w.answer(after)
	w.mu.Lock()
	w.listed++
	if w.failure != nil {
		defer w.mu.Unlock()
		return freshness.Proof{Outcome: freshness.Unknown, Reason: w.failure.Reason, Err: w.failure.Err}, nil
	}
	upTo, changed := w.server, w.changed
	f := freshness.Fence{ResourceVersion: rv(upTo), TakenAt: time.Now(), Epoch: w.epoch}
	w.note(f)
	w.mu.Unlock()
	w.m.Fenced(gvr, f)
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		w.mu.Lock()
		switch {
		case w.stored >= changed:
			w.quietUpTo = max(w.quietUpTo, upTo)
			proof, _ := w.known()
			w.mu.Unlock()
			return proof, nil
		case !time.Now().Before(end):
			defer w.mu.Unlock()
			return freshness.Proof{Outcome: freshness.Stale, ResourceVersion: rv(w.stored + 1), Events: changed - w.stored}, nil
		}
		w.mu.Unlock()
	}
}

func (w *world) ProveByWatch(context.Context, schema.GroupVersionResource, time.Time) (freshness.Proof, error) {
	w.mu.Lock()
	after := w.answerWatchAfter
	switch {
	case w.mute:
		after = watchTime
	case w.stored < w.changed:
		after = 250 * time.Millisecond // The event comes at once.
	}
	w.mu.Unlock()
	w.answer(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched++
	fenced, _ := strconv.Atoi(w.fences[len(w.fences)-1].ResourceVersion)
	switch {
	case w.failure != nil:
		return freshness.Proof{Outcome: freshness.Unknown, Reason: w.failure.Reason, Err: w.failure.Err}, nil
	case w.joined:
		return freshness.Proof{Outcome: freshness.Stale, Method: "List", ResourceVersion: rv(w.stored + 1), Events: w.changed - w.stored}, nil
	case w.mute:
		return freshness.Proof{Outcome: freshness.Unknown, Reason: "NoBookmark"}, nil
	case w.stored < w.changed && w.next(w.stored) > fenced:
		w.quietUpTo = fenced
		return freshness.Proof{Outcome: freshness.Proven, Method: "Watch", ResourceVersion: rv(w.stored), Ahead: rv(w.next(w.stored))}, nil
	case w.stored < w.changed:
		return freshness.Proof{Outcome: freshness.Stale, Method: "Watch", ResourceVersion: rv(w.stored + 1), Events: w.changed - w.stored}, nil
	}
	w.quietUpTo = w.server
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: rv(w.stored)}, nil
}
