// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Effect is what a fault does. The types of this file and OpaqueRVs are all there are.
type Effect interface {
	// behaviour checks the effect's fields and says how streams and requests meet it.
	behaviour() (behaviour, error)
}

// behaviour is an effect in the terms of the parts that apply it; a nil function never applies.
type behaviour struct {
	kind string
	// holds keeps a frame from leaving.
	holds func(*frame) bool
	// stopsReading keeps the proxy from taking more from the backend.
	stopsReading bool
	// delays keeps every frame for the fault's current delay.
	delays bool
	delay  time.Duration
	// drops takes an arriving event out of the stream.
	drops func(Event) bool
	// doubles and swaps select events that come twice, or after the next one.
	doubles, swaps func(Event) bool
	// ends finishes the streams the fault is attached to.
	ends stop
	// answers replaces the backend's answer; nil forwards the request.
	answers func(Request) *answer
	// loses takes the backend's answer away, and cuts the client's stream instead.
	loses func(Request) bool
	// cuts ends the backend's answer after so many bytes, or, with whole, has it look complete there.
	cuts  func(Request) bool
	after int
	whole bool
	// holdsLists keeps back the backend's answers to lists.
	holdsLists bool
	// opaque selects the objects whose resource versions are rewritten on their way to the client.
	opaque func(Event) bool
	// limit is how often drops, answers, loses and cuts apply; 0 means always.
	limit int
}

// Hold keeps every event, and the backend's end of the stream, in the proxy until the fault is cleared; then
// all is delivered in order. Memory grows with what is held.
type Hold struct {
	// Lists also holds the answers to LIST requests and the initial events of WatchList streams, so that a
	// client cannot heal itself by listing anew. A held list shows the state of when it was asked for.
	Lists bool
}

func (h Hold) behaviour() (behaviour, error) {
	return behaviour{
		kind:       "Hold",
		holds:      func(f *frame) bool { return h.Lists || !f.initial },
		holdsLists: h.Lists,
	}, nil
}

// Delay delivers every frame, and the end of the stream, this long after it arrived. Several delays add up.
type Delay struct {
	// By can be changed later with Fault.SetDelay.
	By time.Duration
}

func (d Delay) behaviour() (behaviour, error) {
	if d.By < 0 {
		return behaviour{}, fmt.Errorf("delay %s is negative", d.By)
	}
	return behaviour{kind: "Delay", delays: true, delay: d.By}, nil
}

// The kinds of effects that are told apart by them.
const (
	kindStopReading       = "StopReading"
	kindSuppressBookmarks = "SuppressBookmarks"
)

// StopReading leaves everything in the backend's send buffer, so that the stream's flow-control window fills
// and the backend feels the back-pressure. At most one frame that was already under way is kept in the proxy.
type StopReading struct{}

func (StopReading) behaviour() (behaviour, error) {
	return behaviour{kind: kindStopReading, stopsReading: true, holds: func(*frame) bool { return true }}, nil
}

// DropStream abandons the backend's stream and leaves the client's one open without a byte, while pings on
// its connection are still answered. Clearing it ends the client's stream.
type DropStream struct{}

func (DropStream) behaviour() (behaviour, error) {
	return behaviour{kind: "DropStream", ends: stopSilent}, nil
}

// DropEvents takes events out of the stream.
type DropEvents struct {
	// Match selects the events; nil selects every event but bookmarks and errors.
	Match func(Event) bool
	// Count is how many events are dropped; 0 means all until the fault is cleared.
	Count int
}

func (d DropEvents) behaviour() (behaviour, error) {
	if d.Count < 0 {
		return behaviour{}, fmt.Errorf("count %d is negative", d.Count)
	}
	return behaviour{kind: "DropEvents", drops: orEvery(d.Match), limit: d.Count}, nil
}

// orEvery returns what selects events, or what selects every event but bookmarks and errors.
func orEvery(match func(Event) bool) func(Event) bool {
	if match != nil {
		return match
	}
	return func(e Event) bool { return e.Type != "" && e.Type != watch.Bookmark && e.Type != watch.Error }
}

// DoubleEvents delivers events twice, one right after the other. The state that a watch begins with is left alone.
type DoubleEvents struct {
	// Match selects the events; nil selects every event but bookmarks and errors.
	Match func(Event) bool
}

func (d DoubleEvents) behaviour() (behaviour, error) {
	return behaviour{kind: "DoubleEvents", doubles: orEvery(d.Match)}, nil
}

// ReorderEvents has two neighbours of a stream change places: an event that it selects is kept until the next that it selects was
// delivered. Anything else that comes meanwhile, and the end of the fault, releases it. The state that a watch begins with is
// left alone.
type ReorderEvents struct {
	// Match selects the events; nil selects every event but bookmarks and errors.
	Match func(Event) bool
}

func (r ReorderEvents) behaviour() (behaviour, error) {
	return behaviour{kind: "ReorderEvents", swaps: orEvery(r.Match)}, nil
}

// SuppressBookmarks drops the periodic bookmarks. The one that ends the initial events of a WatchList stream
// passes, because without it the client would never sync, which is another fault.
type SuppressBookmarks struct{}

func (SuppressBookmarks) behaviour() (behaviour, error) {
	return behaviour{
		kind:  kindSuppressBookmarks,
		drops: func(e Event) bool { return e.Type == watch.Bookmark && !e.initialEnd },
	}, nil
}

// Gone ends the running watches with an ERROR event that carries Status 410 Expired, as after a compaction.
// What was still held for them is dropped.
type Gone struct {
	// Resumed also answers that to new watches that resume from a resource version, until the fault is cleared.
	Resumed bool
}

var goneStatus = apierrors.NewResourceExpired("too old resource version: (injected by faultproxy)").Status()

func (g Gone) behaviour() (behaviour, error) {
	b := behaviour{kind: "Gone", ends: stopGone}
	if g.Resumed {
		b.answers = func(r Request) *answer {
			if r.Verb != "watch" || r.SendInitialEvents || r.ResourceVersion == "" || r.ResourceVersion == "0" {
				return nil
			}
			return &answer{status: goneStatus, inStream: true}
		}
	}
	return b, nil
}

// TooLargeRV answers lists and watches as an apiserver that has not yet seen the resource version asked for:
// 504 Timeout with cause ResourceVersionTooLarge, Retry-After 1.
type TooLargeRV struct {
	// Current is the resource version that the answer calls current.
	Current uint64
	// Count is how many requests are answered so; 0 means all until the fault is cleared. client-go asks up
	// to ten times before its caller sees the error.
	Count int
}

func (t TooLargeRV) behaviour() (behaviour, error) {
	if t.Count < 0 {
		return behaviour{}, fmt.Errorf("count %d is negative", t.Count)
	}
	return behaviour{kind: "TooLargeRV", limit: t.Count, answers: func(r Request) *answer {
		if r.Verb != "list" && r.Verb != "watch" {
			return nil
		}
		asked, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
		if err != nil || asked == 0 {
			asked = t.Current + 1
		}
		var status apierrors.APIStatus
		if !errors.As(storage.NewTooLargeResourceVersionError(asked, t.Current, 1), &status) {
			return nil
		}
		return &answer{status: status.Status()}
	}}, nil
}

// TooManyRequests answers 429 with Retry-After, as priority and fairness does.
type TooManyRequests struct {
	// RetryAfter is rounded up to whole seconds; 0 sends no Retry-After header.
	RetryAfter time.Duration
	// Verbs are the Kubernetes verbs refused; empty means get, list and watch.
	Verbs []string
	// Count is how many requests are answered so; 0 means all until the fault is cleared. client-go asks up
	// to ten times before its caller sees the error.
	Count int
}

func (t TooManyRequests) behaviour() (behaviour, error) {
	if t.Count < 0 || t.RetryAfter < 0 {
		return behaviour{}, fmt.Errorf("count %d or retry-after %s is negative", t.Count, t.RetryAfter)
	}
	verbs := slices.Clone(t.Verbs)
	if len(verbs) == 0 {
		verbs = []string{"get", "list", "watch"}
	}
	seconds := int((t.RetryAfter + time.Second - 1) / time.Second)
	status := apierrors.NewTooManyRequests(http.StatusText(http.StatusTooManyRequests)+", injected by faultproxy", seconds).Status()
	return behaviour{kind: "TooManyRequests", limit: t.Count, answers: func(r Request) *answer {
		if !slices.Contains(verbs, r.Verb) {
			return nil
		}
		return &answer{status: status}
	}}, nil
}

// LoseAnswers has requests executed and their answers lost on the way: the client's stream is cut, as with a
// connection that breaks at that moment.
type LoseAnswers struct {
	// Verbs are the Kubernetes verbs whose answers are lost; empty means create, update, patch and delete.
	Verbs []string
	// Count is how many answers are lost; 0 means all until the fault is cleared.
	Count int
}

func (l LoseAnswers) behaviour() (behaviour, error) {
	if l.Count < 0 {
		return behaviour{}, fmt.Errorf("count %d is negative", l.Count)
	}
	verbs := slices.Clone(l.Verbs)
	if len(verbs) == 0 {
		verbs = []string{"create", "update", "patch", "delete"}
	}
	if slices.Contains(verbs, "watch") {
		return behaviour{}, errors.New("a watch has no answer to lose: see DropStream and DropEvents")
	}
	return behaviour{kind: "LoseAnswers", limit: l.Count, loses: func(r Request) bool { return slices.Contains(verbs, r.Verb) }}, nil
}

// CutAnswers has requests executed and their answers end in the middle.
type CutAnswers struct {
	// Verbs are the Kubernetes verbs whose answers are cut; empty means list.
	Verbs []string
	// After is how many bytes of the body reach the client, as they are on the wire. An answer with no more is left alone.
	After int
	// Whole ends the answer without a length, as something in between may do that does not notice: the client can tell only
	// by the content. Otherwise its end is unexpected, as where a connection breaks at that moment.
	Whole bool
	// Count is how many answers are cut; 0 means all until the fault is cleared.
	Count int
}

func (c CutAnswers) behaviour() (behaviour, error) {
	if c.Count < 0 || c.After < 0 {
		return behaviour{}, fmt.Errorf("count %d or after %d is negative", c.Count, c.After)
	}
	verbs := slices.Clone(c.Verbs)
	if len(verbs) == 0 {
		verbs = []string{"list"}
	}
	if slices.Contains(verbs, "watch") {
		return behaviour{}, errors.New("a watch has no answer to cut: see DropStream and Gone")
	}
	return behaviour{
		kind: "CutAnswers", limit: c.Count, after: c.After, whole: c.Whole,
		cuts: func(r Request) bool { return slices.Contains(verbs, r.Verb) },
	}, nil
}
