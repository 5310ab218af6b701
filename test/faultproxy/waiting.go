// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// waiting has, for each client and resource, the events that the backend has sent and that are not being handed to the
// client, whatever became of the streams: one that is sent again on another stream goes on waiting.
type waiting struct {
	mu sync.Mutex
	by map[waitingKey]*waitingEvents
}

type waitingKey struct {
	resource schema.GroupResource
	client   string
}

type waitingEvents struct {
	// marks are in the order of their versions; last is the newest version that was ever sent.
	marks []Mark
	last  string
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
	key := waitingKey{r.Resource, r.Client}
	of := w.by[key]
	if of == nil {
		of = &waitingEvents{}
		w.by[key] = of
	}
	before := of.last
	if before == "" {
		before = "1" // older than any event
	}
	if c, err := resourceversion.CompareResourceVersion(e.ResourceVersion, before); err == nil && c > 0 {
		of.last = e.ResourceVersion
		of.marks = append(of.marks, Mark{e.ResourceVersion, at})
	}
}

// delivered forgets what the client has with this version.
func (w *waiting) delivered(r Request, rv string) {
	if rv == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.by[waitingKey{r.Resource, r.Client}]
	if of == nil {
		return
	}
	n := 0
	for n < len(of.marks) {
		if c, err := resourceversion.CompareResourceVersion(of.marks[n].ResourceVersion, rv); err != nil || c > 0 {
			break
		}
		n++
	}
	of.marks = of.marks[n:]
}

func (w *waiting) since(key waitingKey) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.by[key]; of != nil && len(of.marks) > 0 {
		return of.marks[0].Time
	}
	return time.Time{}
}
