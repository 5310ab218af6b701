// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"cmp"
	"slices"
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

// EachWaiting calls visit for the parked owners that wants says yes to, in any order, once for each resource that one waits
// for. It holds the tracker's lock for some owners at a time: wants is called with it, and must be quick, visit without it. An
// owner that comes or goes meanwhile may be left out, or come twice.
func (t *Tracker) EachWaiting(wants func(since time.Time) bool, visit func(Wait)) {
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
	for _, c := range slices.Clone(t.controllers) {
		if c.parked == 0 {
			continue
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
	}
	flush()
	t.mu.Unlock()
}

// Waiting returns every parked owner, sorted by controller, owner and resource.
func (t *Tracker) Waiting() []Wait {
	var out []Wait
	t.EachWaiting(func(time.Time) bool { return true }, func(w Wait) { out = append(out, w) })
	slices.SortFunc(out, func(a, b Wait) int {
		return cmp.Or(
			cmp.Compare(a.Controller, b.Controller),
			cmp.Compare(a.Owner.Namespace, b.Owner.Namespace),
			cmp.Compare(a.Owner.Name, b.Owner.Name),
			compareResource(a.Resource, b.Resource),
		)
	})
	return out
}

// SourceInfo is the state of one registered store.
type SourceInfo struct {
	Resource schema.GroupResource
	// StoreRV is the last comparable RV of the store, "" before the first.
	StoreRV string
	// Epoch counts proven rewinds, Regressions how often the store went back.
	Epoch, Regressions uint64
	// Blocked is why no owner may trust the store now, or "".
	Blocked Why
	// Records is the number of owners with writes or deletes not seen yet.
	Records int
	// Hooked: the store reports by itself (our client-go), else it is polled.
	Hooked bool
	// Delivered is how far each event handler of its informer is.
	Delivered []DeliveryInfo
}

// DeliveryInfo is how far one event handler is.
type DeliveryInfo struct {
	Name string
	RV   string
}

// Sources returns every registered store, sorted by resource.
func (t *Tracker) Sources() []SourceInfo {
	t.mu.Lock()
	sources := slices.Clone(t.sources)
	t.mu.Unlock()
	sortSources(sources)
	out := make([]SourceInfo, 0, len(sources))
	for _, s := range sources {
		t.mu.Lock()
		info := SourceInfo{Resource: s.resource, StoreRV: s.pos().String(), Epoch: s.epoch,
			Regressions: s.regressions, Records: s.records, Hooked: s.hooked}
		if !s.usable() {
			info.Blocked, _, _ = s.why(nil)
		}
		t.mu.Unlock()
		for _, d := range s.Deliveries() {
			info.Delivered = append(info.Delivered, DeliveryInfo{Name: d.name, RV: version{lo: d.Position()}.String()})
		}
		out = append(out, info)
	}
	return out
}

func sortSources(sources []*Source) {
	slices.SortStableFunc(sources, func(a, b *Source) int { return compareResource(a.resource, b.resource) })
}

func compareResource(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
