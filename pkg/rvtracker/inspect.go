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

// Waiting returns every parked owner, sorted by controller, owner and resource.
func (t *Tracker) Waiting() []Wait {
	t.mu.Lock()
	var out []Wait
	for _, c := range t.controllers {
		if c.parked == 0 {
			continue
		}
		c.table.each(func(o *owner) {
			if o.park == nil {
				return
			}
			o.each(func(r *record) {
				w := Wait{Controller: c.name, Owner: o.name, OwnerUID: o.uid, Resource: r.src.resource,
					SeenRV: r.src.pos().String(), Since: o.park.since, ProvenStale: o.park.stale}
				w.Why, w.AwaitedRV, w.DeletingUID = r.src.why(r)
				out = append(out, w)
			})
		})
	}
	t.mu.Unlock()
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
