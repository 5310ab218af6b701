// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// world is the whole record by object, whatever was recorded of it.
type world struct {
	a     *arrivals
	lives []*life
	byUID map[types.UID]*life
	// dependents are the objects that have ever named an owner, by its UID.
	dependents map[types.UID][]*life
}

// life is all that was recorded of one object.
type life struct {
	resource schema.GroupResource
	events   []truth.Event
}

// newWorld returns nil if resource versions went backward in the record, as when etcd was restored: then they say nothing of what came first.
func newWorld(t *truth.Recorder, a *arrivals) *world {
	w := &world{a: a, byUID: map[types.UID]*life{}, dependents: map[types.UID][]*life{}}
	for _, resource := range t.Resources() {
		last := uint64(0)
		for _, e := range t.All(resource) {
			if !e.Initial {
				if e.RV < last {
					return nil
				}
				last = e.RV
			}
			l := w.byUID[e.UID]
			if l == nil {
				l = &life{resource: resource}
				w.byUID[e.UID] = l
				w.lives = append(w.lives, l)
			}
			l.events = append(l.events, e)
			for _, ref := range metaOf(e).GetOwnerReferences() {
				if !slices.Contains(w.dependents[ref.UID], l) {
					w.dependents[ref.UID] = append(w.dependents[ref.UID], l)
				}
			}
		}
	}
	return w
}

// of returns the objects of a resource.
func (w *world) of(resource schema.GroupResource) []*life {
	return slices.DeleteFunc(slices.Clone(w.lives), func(l *life) bool { return l.resource != resource })
}

// born says that the record has the object's creation.
func (l *life) born() bool { return l.events[0].Type == watch.Added && !l.events[0].Initial }

// at returns what an object was at a resource version, if it was there.
func (l *life) at(rv uint64) (last truth.Event, there bool) {
	for _, e := range l.events {
		if e.RV > rv && !e.Initial {
			break
		}
		last, there = e, e.Type != watch.Deleted
	}
	return last, there
}

// since returns whether something is so of an object at a resource version, and since when without a break: the zero time if ever since
// the recording began.
func (l *life) since(rv uint64, is func(truth.Event) bool) (since time.Time, so bool) {
	for _, e := range l.events {
		if e.RV > rv && !e.Initial {
			break
		}
		was := so
		if so = e.Type != watch.Deleted && is(e); so && !was {
			if since = e.Time; e.Initial {
				since = time.Time{}
			}
		}
	}
	return since, so
}

// known reports whether something was so of an object, and has been so for longer than an action may rest on what was so before, when a
// request arrived that was carried out after a resource version.
func (w *world) known(l *life, rv uint64, request *controlplane.AuditEvent, is func(truth.Event) bool) bool {
	since, so := l.since(rv, is)
	return so && request.RequestReceivedTimestamp.Sub(since) > promised+w.a.lag
}

// changes visits each change of the objects, with what they were before and which request made it if it can only have been one of a
// controller. Subresource is that of the request.
func (w *world) changes(l *life, subresource string, changed func(before, e truth.Event) bool, visit func(before, e truth.Event, request *controlplane.AuditEvent)) {
	for i, e := range l.events[1:] {
		before := l.events[i]
		if !changed(before, e) {
			continue
		}
		if request := w.a.writer(l.resource, before, e, subresource); request != nil {
			visit(before, e, request)
		}
	}
}

// writer returns the last request that may have changed an object, nil unless all that may have are of one controller. One that is past cannot
// have, nor one that had been answered for longer before the last request arrived than the truth is late.
func (a *arrivals) writer(resource schema.GroupResource, before, e truth.Event, subresource string) *controlplane.AuditEvent {
	var may []*controlplane.AuditEvent
	deletions := 0
	for _, w := range slices.Concat(a.writes[place{resource, e.Namespace, e.Name}], a.writes[place{resource, e.Namespace, ""}]) {
		if w.RequestReceivedTimestamp.After(e.Time) || a.past(w, resource, before) || w.Verb == "create" || w.ObjectRef.Subresource != subresource {
			continue
		}
		if w.Verb == "delete" || w.Verb == "deletecollection" {
			// One of them has made the object one that is being deleted; another may change its finalizers.
			if deletions++; deletions == 1 && deletes(before) && !w.RequestReceivedTimestamp.After(before.Time) {
				continue
			}
		}
		may = append(may, w)
	}
	if len(may) == 0 {
		return nil
	}
	last := slices.MaxFunc(may, func(a, b *controlplane.AuditEvent) int {
		return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp)
	})
	for _, w := range may {
		if By(last) == "" || By(w) != By(last) && !a.answered(w, last.RequestReceivedTimestamp) {
			return nil
		}
	}
	return last
}

// answered says that what a request changed had been recorded by a time.
func (a *arrivals) answered(w *controlplane.AuditEvent, by time.Time) bool {
	return succeeded(w) && w.StageTimestamp.Add(a.lag).Before(by)
}

// metaOf is an object's metadata; the truth records nothing without.
func metaOf(e truth.Event) metav1.Object {
	m, err := meta.Accessor(e.Object)
	if err != nil {
		panic(err)
	}
	return m
}

// refersTo says that an object names an owner.
func refersTo(owner types.UID, blocking bool) func(truth.Event) bool {
	return func(e truth.Event) bool {
		return slices.ContainsFunc(metaOf(e).GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			return ref.UID == owner && (!blocking || ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion)
		})
	}
}

// describe names an object for a violation.
func (l *life) describe() string {
	last := l.events[len(l.events)-1]
	return l.resource.Resource + " " + prefixed(last.Namespace) + last.Name
}

// wronged adds a violation of S2 by a change of the object, if there is a detail to tell of it.
func (l *life) wronged(out []Violation, rule string, e truth.Event, detail string) []Violation {
	if detail == "" {
		return out
	}
	return append(out, Violation{Oracle: "S2", Rule: rule, Object: l.describe(), RV: e.RV, Time: e.Time, Detail: detail})
}

func prefixed(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + "/"
}
