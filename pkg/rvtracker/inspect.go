// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Wait is one owner that must not be reconciled yet, and one resource that it waits for.
type Wait struct {
	// Controller is the name given to ForController.
	Controller string
	Owner      types.NamespacedName
	// OwnerUID is empty if the owner has written nothing.
	OwnerUID types.UID
	// Resource, of an error or a report, is the first, of possibly several, whose cache is behind.
	Resource schema.GroupResource
	Why      why
	// SeenRV is what the store had reached; empty if nothing yet.
	SeenRV string
	// Since is when the owner was parked; zero if it is not.
	Since time.Time
	// ProvenStale is true if a fence has shown that the server is at or past what is awaited, or a proof that the cache lacks
	// something. False: no read could say.
	ProvenStale bool
	// Further, of a report, says that enough others were reported with it to show why: the log does without it.
	Further bool

	awaitedRV   string    // empty if a deletion, a relist or a proof is awaited
	deletingUID types.UID // still alive in the store, if a deletion is awaited
	deletes     bool
}

// Awaits says what has to happen.
func (w *Wait) Awaits() string {
	switch w.Why {
	case whyDelete:
		return fmt.Sprintf("the deletion of UID %q", w.deletingUID)
	case whyRelist:
		return "a relist, because resource versions went backward"
	case whyDoubt:
		return "a relist and a consistent read, because resource versions of another resource went backward"
	case whyUnproven:
		return "a proof that it is as new as another cache, which was relisted"
	}
	return fmt.Sprintf("resource version %q", w.awaitedRV)
}

// Reason is Why in short, as the metric of parked owners has it.
func (w *Wait) Reason() string { return reasons[w.Why.reason()] }

// Precedes reports whether what is awaited, a write or a deletion, was made before rv.
func (w *Wait) Precedes(rv string) bool {
	before := w.awaitedRV
	switch w.Why {
	case whyWrite:
	case whyDelete:
		before = w.SeenRV // That of the deletion is not known: while the object is shown, the store is behind it.
	default:
		return false
	}
	b, known := parseVersion(before)
	v, ok := parseVersion(rv)
	return known && ok && b.less(v)
}

// Deletes reports whether a deletion is among what is awaited.
func (w *Wait) Deletes() bool { return w.deletes }

// wait is what o waits for at s, or any owner of that name without o.
func (c *Controller) wait(o *owner, name types.NamespacedName, s *Source) Wait {
	w := Wait{Controller: c.name, Owner: name, Resource: s.resource, SeenRV: s.pos().String()}
	var r *record
	if o != nil {
		w.OwnerUID, r = o.uid, o.find(s)
		if o.park != nil {
			w.Since, w.ProvenStale = o.park.since, o.park.stale
		}
	}
	w.Why, w.awaitedRV, w.deletingUID = s.why(r)
	w.deletes = r != nil && r.hasDeletes()
	return w
}

// inspectedAtOnce is how many owners EachWaiting looks at before it gives up the lock for a moment (some 20 µs).
const inspectedAtOnce = 256

// EachWaiting calls visit for the controller's parked owners for which wants returns true, in any order, once for each resource that one
// waits for. It takes the tracker's lock for some owners at a time: it calls wants, which must be quick, with the lock, and visit without.
// It may leave out, or visit twice, an owner that is parked or woken meanwhile.
func (c *Controller) EachWaiting(wants func(since time.Time) bool, visit func(Wait)) {
	t := c.t
	var found []Wait
	looked := 0
	flush := func() {
		t.mu.Unlock()
		for _, w := range found {
			visit(w)
		}
		clear(found)
		found, looked = found[:0], 0
		t.mu.Lock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.parked == 0 {
		return
	}
	// The map may change while the lock is not held: a range over it goes on all the same.
	for _, first := range c.table.owners {
		for o := first; o != nil; o = o.chain {
			looked++
			if o.park == nil {
				continue
			}
			o.each(func(r *record) {
				if !wants(o.park.since) {
					return
				}
				found = append(found, c.wait(o, o.name, r.src))
			})
		}
		if looked >= inspectedAtOnce {
			flush()
		}
	}
	flush()
}

// Recorded is the number of owners with a record: a write or a deletion that a store does not show yet, or
// a wait.
func (t *Tracker) Recorded() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.controllers {
		n += int(c.busy.Load() - c.blocked.Load())
	}
	return n
}

func bySource(a, b *Source) int { return compareResource(a.resource, b.resource) }
func compareResource(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
