// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Target selects the requests and watch streams of one resource; every field that is set must match.
type Target struct {
	// Resource is required. Requests for its subresources are not touched, except by OpaqueRVs.
	Resource schema.GroupResource
	// UserAgent is the first token of the client's User-Agent header.
	UserAgent string
	// Running restricts the fault to the streams that are open when it is injected, so that a client that
	// reconnects is healed.
	Running bool
	// Match is called once per request or stream, and must not call the Proxy.
	Match func(Request) bool
}

func (t Target) matches(r Request) bool {
	return r.Resource == t.Resource &&
		(t.UserAgent == "" || t.UserAgent == r.UserAgent) &&
		(t.Match == nil || t.Match(r))
}

// meets says whether the fault has anything to do with a request or stream.
func (f *Fault) meets(r Request) bool {
	// What a proxied pod answers is not the apiserver's.
	return (r.Subresource == "" || f.b.opaque != nil && r.Subresource != "proxy") && f.target.matches(r)
}

// Tally counts frames and their bytes, and the events among them by type.
type Tally struct {
	Frames int
	Bytes  int
	Events map[watch.EventType]int
}

func (t *Tally) add(f *frame) {
	t.Frames++
	t.Bytes += len(f.raw)
	if f.event.Type != "" {
		if t.Events == nil {
			t.Events = map[watch.EventType]int{}
		}
		t.Events[f.event.Type]++
	}
}

// changes is how many of the events say that an object has changed: neither bookmarks nor errors do.
func (t *Tally) changes() int {
	return t.Events[watch.Added] + t.Events[watch.Modified] + t.Events[watch.Deleted]
}

// Stats is what a fault did so far. What it still keeps is Held less Released and less Dropped, except for
// filters, which drop without holding.
type Stats struct {
	ID       string
	Effect   string
	Resource schema.GroupResource
	// Since is when the fault was injected; Until when it was cleared, zero while it is in force.
	Since, Until time.Time
	// Streams is how many watch streams (for a black hole: connections) the fault met.
	Streams int
	// Requests is how many requests it answered or, for lists, held, or whose answers it rewrote, cut or lost.
	Requests int
	// Seen arrived while the fault was in force; Held, Released and Dropped say what became of it. The
	// backend's end of a stream counts as a frame without bytes.
	Seen, Held, Released, Dropped Tally
	// Rewritten went to the client with another resource version.
	Rewritten Tally
	// Doubled came twice; Swapped came after the one that it was sent before.
	Doubled, Swapped Tally
	// FirstHeldRV and LastHeldRV are the resource versions of the first and the last event held or dropped.
	FirstHeldRV, LastHeldRV string
}

// Touched is how many changes of objects the fault has held, dropped, rewritten, doubled or put out of order, and how many requests it has met. That it held
// back bookmarks and ends of streams alone, or errors, has kept nothing from anybody. Of SuppressBookmarks and StopReading every frame
// counts: the one is about bookmarks, and the other leaves what it holds unread.
func (s Stats) Touched() int {
	count := (*Tally).changes
	switch s.Effect {
	case kindSuppressBookmarks, kindStopReading:
		count = func(t *Tally) int { return t.Frames }
	}
	return max(count(&s.Held), count(&s.Dropped)) + count(&s.Rewritten) + count(&s.Doubled) + count(&s.Swapped) + s.Requests
}

// Fault is one effect in force on one target. Its methods may be called from any goroutine.
type Fault struct {
	proxy  *Proxy
	id     string
	target Target
	b      behaviour
	// cleared is closed by Clear.
	cleared chan struct{}

	mu    sync.Mutex
	left  int
	delay time.Duration
	stats Stats
}

// ID names the fault in the journal.
func (f *Fault) ID() string { return f.id }

// Clear takes the fault back: what it held is released in order, and streams that it dropped are ended. It
// may be called more than once.
func (f *Fault) Clear() { f.proxy.clear(f) }

// SetDelay changes the delay of a Delay, also for the frames that are waiting already.
func (f *Fault) SetDelay(by time.Duration) error {
	if !f.b.delays {
		return fmt.Errorf("fault %s is a %s: it has no delay", f.id, f.b.kind)
	}
	if by < 0 {
		return fmt.Errorf("fault %s: delay %s is negative", f.id, by)
	}
	f.mu.Lock()
	f.delay = by
	f.mu.Unlock()
	f.proxy.wakeStreams()
	return nil
}

// Stats returns a copy of what the fault did so far.
func (f *Fault) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	for _, t := range []*Tally{&s.Seen, &s.Held, &s.Released, &s.Dropped, &s.Rewritten, &s.Doubled, &s.Swapped} {
		t.Events = maps.Clone(t.Events)
	}
	return s
}

var errNoResource = errors.New("target names no resource")

// keeps says whether the fault can hold this frame back.
func (f *Fault) keeps(fr *frame) bool {
	return f.b.delays || f.b.holds != nil && f.b.holds(fr)
}

func (f *Fault) currentDelay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delay
}

// take uses up one of a limited number of interventions.
func (f *Fault) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.b.limit == 0 {
		return true
	}
	if f.left == 0 {
		return false
	}
	f.left--
	return true
}

func (f *Fault) saw(fr *frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Seen.add(fr)
}

func (f *Fault) metStream() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Streams++
}

// did counts and journals what happened to a frame because of the fault.
func (f *Fault) did(a Action, stream int64, fr *frame) {
	f.mu.Lock()
	switch a {
	case ActionHeld:
		f.stats.Held.add(fr)
	case ActionReleased:
		f.stats.Released.add(fr)
	case ActionDropped:
		f.stats.Dropped.add(fr)
	case ActionRewritten:
		f.stats.Rewritten.add(fr)
	case ActionDoubled:
		f.stats.Doubled.add(fr)
	case ActionSwapped:
		f.stats.Swapped.add(fr)
	}
	if rv := fr.event.ResourceVersion; rv != "" && (a == ActionHeld || a == ActionDropped) {
		if f.stats.FirstHeldRV == "" {
			f.stats.FirstHeldRV = rv
		}
		if a == ActionHeld || f.b.drops != nil {
			f.stats.LastHeldRV = rv
		}
	}
	f.mu.Unlock()
	e := f.entry(a)
	e.Stream, e.Type, e.Namespace, e.Name = stream, fr.event.Type, fr.event.Namespace, fr.event.Name
	e.ResourceVersion = fr.event.ResourceVersion
	f.proxy.journal.add(e)
}

// didRequest journals an intervention on a request; it is counted once, when it is answered or first held.
func (f *Fault) didRequest(a Action, r Request) {
	if a != ActionReleased {
		f.mu.Lock()
		f.stats.Requests++
		f.mu.Unlock()
	}
	e := f.entry(a)
	e.Namespace, e.Name, e.ResourceVersion = r.Namespace, r.Name, r.ResourceVersion
	f.proxy.journal.add(e)
}

func (f *Fault) entry(a Action) Entry {
	return Entry{Time: time.Now(), Action: a, Fault: f.id, Effect: f.b.kind, Resource: f.target.Resource}
}
