// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// waiting has, for each client and resource, the events that the backend has sent and that are not being handed to the
// client, whatever became of the streams: one that is sent again on another stream goes on waiting, also if it was
// being handed over just when the client ended the stream before.
type waiting struct {
	mu sync.Mutex
	by map[waitingKey]*waitingEvents
}

type waitingKey struct {
	resource schema.GroupResource
	client   string
}

// keptMarks is how many events that a client has are remembered for when it turns out that it does not.
const keptMarks = 1000

type waitingEvents struct {
	// marks are in the order of their versions; last is the newest version that was ever sent. The client has the
	// first of them.
	marks []Mark
	has   int
	last  string
	// stream is the newest. What is handed over on an older one arrives nowhere.
	stream int64
}

// upTo is how many of the marks are at or below a version.
func (of *waitingEvents) upTo(rv string) int {
	return sort.Search(len(of.marks), func(i int) bool {
		c, err := resourceversion.CompareResourceVersion(of.marks[i].ResourceVersion, rv)
		return err != nil || c > 0
	})
}

func newWaiting() *waiting { return &waiting{by: map[waitingKey]*waitingEvents{}} }

// sent notes an event, unless it is no newer than one before. Bookmarks and versions that cannot be compared
// are not counted.
func (w *waiting) sent(r Request, e Event, at time.Time) {
	if e.Type == watch.Bookmark || e.ResourceVersion == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of(r)
	before := of.last
	if before == "" {
		before = "1" // older than any event
	}
	if c, err := resourceversion.CompareResourceVersion(e.ResourceVersion, before); err == nil && c > 0 {
		of.last = e.ResourceVersion
		of.marks = append(of.marks, Mark{e.ResourceVersion, at})
	}
}

// of must be called with mu held.
func (w *waiting) of(r Request) *waitingEvents {
	key := waitingKey{r.Resource, r.Client}
	if w.by[key] == nil {
		w.by[key] = &waitingEvents{}
	}
	return w.by[key]
}

// opened notes that a client has opened a stream, and so that it has no more than the version it asks from.
func (w *waiting) opened(r Request, stream int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of(r)
	of.stream = max(of.stream, stream)
	if _, err := resourceversion.CompareResourceVersion(r.ResourceVersion, r.ResourceVersion); err == nil {
		of.has = min(of.has, of.upTo(r.ResourceVersion))
	}
}

// delivered notes that the client is being handed this version.
func (w *waiting) delivered(r Request, stream int64, rv string) {
	if rv == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of(r)
	if stream < of.stream {
		return
	}
	of.has = max(of.has, of.upTo(rv))
	if surplus := of.has - keptMarks; surplus > 0 {
		of.marks, of.has = of.marks[surplus:], keptMarks
	}
}

func (w *waiting) since(key waitingKey) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.by[key]; of != nil && of.has < len(of.marks) {
		return of.marks[of.has].Time
	}
	return time.Time{}
}
