// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// KubeControllerManager stands for the identity of the process itself, which not every controller changes for one of its own.
const KubeControllerManager = "kube-controller-manager"

// By returns which controller made a request: its service account, or KubeControllerManager if it used the identity of the
// process. Nothing means somebody else.
func By(e *controlplane.AuditEvent) string {
	if e.User.Username == "system:"+KubeControllerManager {
		return KubeControllerManager
	}
	return e.ServiceAccount()
}

// arrivals are the writes to each object, in the order in which they arrived at an apiserver, and what they say of how late the
// truth is.
//
// A change was committed after the request for it had arrived, and before the truth recorder received it. So nothing else can have
// seen a change before the arrival of its request: the times that controllers count from a change are judged from there. What the
// recorder took longer is measured in the run itself: lag is the longest time from the arrival of a request to the arrival of its
// change at the recorder, among the creations, deletions and marks of the run that leave no doubt which request made them. It
// includes the time that the apiserver took. Judges that compare the times of two changes allow so much, which is milliseconds on
// a machine that is not overloaded, and nothing else.
type arrivals struct {
	writes map[place][]*controlplane.AuditEvent
	// statuses are those of objects, by whatever resource.
	statuses map[types.NamespacedName][]*controlplane.AuditEvent
	lag      time.Duration
	latestAt time.Time // when the change that was late by lag was recorded
}

// place is one object.
type place struct {
	resource        schema.GroupResource
	namespace, name string
}

func placeOf(e *controlplane.AuditEvent) place {
	return place{schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}, e.ObjectRef.Namespace, e.ObjectRef.Name}
}

// applied reports whether a request may have changed something: it was not refused. Of one that ended with an error of the
// server, or a time-out, that is not known.
func applied(e *controlplane.AuditEvent) bool {
	return succeeded(e) || e.ResponseStatus.Code >= 500 || e.ResponseStatus.Code == 0
}

func newArrivals(t *truth.Recorder, writes []controlplane.AuditEvent) *arrivals {
	a := &arrivals{writes: map[place][]*controlplane.AuditEvent{}, statuses: map[types.NamespacedName][]*controlplane.AuditEvent{}}
	for _, e := range byArrival(writes) {
		at := placeOf(e)
		a.writes[at] = append(a.writes[at], e)
		if e.ObjectRef.Subresource == "status" {
			of := types.NamespacedName{Namespace: at.namespace, Name: at.name}
			a.statuses[of] = append(a.statuses[of], e)
		}
	}
	for _, resource := range []schema.GroupResource{
		truth.Pods, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.Deployments, truth.Jobs, truth.PersistentVolumeClaims,
	} {
		a.measure(t, resource)
	}
	changes(t, func(before, e truth.Event) {
		// Should another request have come before the change was recorded, the sample is too small.
		switch {
		case isUnknown(e) && !isUnknown(before):
			a.sample(a.last(truth.Nodes, e, byNodeLifecycle), e)
		case len(added(before, e)) > 0:
			a.sample(a.last(truth.Nodes, e, tainter), e)
		}
	})
	return a
}

// byArrival returns the requests that may have changed something.
func byArrival(writes []controlplane.AuditEvent) (out []*controlplane.AuditEvent) {
	for i := range writes {
		if applied(&writes[i]) {
			out = append(out, &writes[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *controlplane.AuditEvent) int {
		return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp)
	})
	return out
}

// measure takes samples of the objects that were made and deleted once under their names.
func (a *arrivals) measure(t *truth.Recorder, resource schema.GroupResource) {
	made, ended := map[place][]truth.Event{}, map[place][]truth.Event{}
	going := map[place]bool{}
	for _, e := range t.Events(resource) {
		at := place{resource, e.Namespace, e.Name}
		if e.Type == watch.Added && !e.Initial {
			made[at] = append(made[at], e)
		}
		if gone := e.Type == watch.Deleted || deletes(e); gone && !going[at] {
			ended[at] = append(ended[at], e)
			going[at] = true
		}
	}
	for verb, events := range map[string]map[place][]truth.Event{"create": made, "delete": ended} {
		for at, of := range events {
			var requests []*controlplane.AuditEvent
			for _, w := range a.writes[at] {
				if w.Verb == verb && w.ObjectRef.Subresource == "" {
					requests = append(requests, w)
				}
			}
			if len(of) == 1 && len(made[at]) <= 1 && len(requests) == 1 && succeeded(requests[0]) {
				a.sample(requests[0], of[0])
			}
		}
	}
}

// sample counts a request and its change. A change that was there before the request arrived was another's.
func (a *arrivals) sample(w *controlplane.AuditEvent, e truth.Event) {
	if w != nil && !w.RequestReceivedTimestamp.IsZero() && !e.Time.Before(w.RequestReceivedTimestamp) {
		if late := e.Time.Sub(w.RequestReceivedTimestamp); late > a.lag {
			a.lag, a.latestAt = late, e.Time
		}
	}
}

// last returns the last request for an object that had arrived when a change of it was recorded; nil if there is none.
func (a *arrivals) last(resource schema.GroupResource, e truth.Event, is func(*controlplane.AuditEvent) bool) *controlplane.AuditEvent {
	of := a.writes[place{resource, e.Namespace, e.Name}]
	for i := len(of) - 1; i >= 0; i-- {
		if !of[i].RequestReceivedTimestamp.After(e.Time) && is(of[i]) {
			return of[i]
		}
	}
	return nil
}

// at returns when the request of node lifecycle for a change arrived, or when the change was recorded if no request is known.
func (a *arrivals) at(resource schema.GroupResource, e truth.Event) time.Time {
	if w := a.last(resource, e, byNodeLifecycle); w != nil {
		return w.RequestReceivedTimestamp
	}
	return e.Time
}

func byNodeLifecycle(w *controlplane.AuditEvent) bool { return By(w) == NodeController }

// Lag returns how late the truth was at most, by what the run itself shows: the longest time from the arrival of a request to
// that of its change at the recorder. It is zero if the run shows nothing of it.
func Lag(t *truth.Recorder, writes []controlplane.AuditEvent) time.Duration {
	return newArrivals(t, writes).lag
}
