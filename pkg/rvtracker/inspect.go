// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Wait is one parked owner, for one resource that it waits for.
type Wait struct {
	Controller  string
	Owner       types.NamespacedName
	OwnerUID    types.UID
	Resource    schema.GroupResource
	Why         Why
	AwaitedRV   string
	SeenRV      string
	DeletingUID types.UID
	// Since is when the owner was parked.
	Since time.Time
	// ProvenStale: a fence has shown the server to be at or past what is awaited.
	ProvenStale bool
}

// Awaits says what has to happen.
func (w Wait) Awaits() string { return w.Why.awaits(w.AwaitedRV, w.DeletingUID) }

// inspectedAtOnce is how many owners are looked at in one hold of the lock (some 20 µs).
const inspectedAtOnce = 256

// EachWaiting calls visit for the controller's parked owners that wants says yes to, in any order, once for each resource that one
// waits for. It holds the tracker's lock for some owners at a time: wants is called with it, and must be quick, visit without it. An
// owner that comes or goes meanwhile may be left out, or come twice.
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
	// The map may change between two holds of the lock: a range over it goes on all the same.
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
				w := Wait{Controller: c.name, Owner: o.name, OwnerUID: o.uid, Resource: r.src.resource,
					SeenRV: r.src.pos().String(), Since: o.park.since, ProvenStale: o.park.stale}
				w.Why, w.AwaitedRV, w.DeletingUID = r.src.why(r)
				found = append(found, w)
			})
		}
		if looked >= inspectedAtOnce {
			flush()
		}
	}
	flush()
}

// Recorded is the number of owners of which there is a record: of a write or a deletion that a store has yet to show, or
// of a wait.
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
