// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const (
	// served is for how long a pod must have been ready on a node that is there, so that it is harm to leave it out.
	served = 2 * time.Second
	// lacks is for how long a Service may lack one, whatever is wrong with the cache of nodes, if they can be read: a Service is
	// tried again after 1 s, 2 s and 4 s where its own slices are not seen yet.
	lacks = 10 * time.Second
	// lookedUp is how many nodes may come together that the cache lacks, so that the budget of live reads is there for all.
	lookedUp = 5
)

// ServiceOwner is the Service by which the requests for its slices are counted.
func ServiceOwner(name string) model.Owner {
	o := model.Owner{Kind: model.Services.Kind}
	o.Namespace, o.Name = traffic.Namespace, name
	return o
}

// services is how the Services of a schedule stand.
type services struct {
	schedule       schedule.Schedule
	missing, stray map[model.Owner]time.Time
	// ready is since when a pod is, on a node that is there; gone are the nodes that were deleted once.
	ready map[types.UID]time.Time
	gone  map[string]bool
	// lacked is since when a Service lacks a pod.
	lacked map[model.Owner]map[types.UID]time.Time
	// looked is how many nodes the controller has read from the server.
	looked int
}

// servable says that a pod should be a ready endpoint of a Service that selects it.
func servable(truth model.Truth, p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && isReadyPod(p) && truth.Get(model.Nodes, "", p.Spec.NodeName) != nil
}

// endpoints are the pods that are ready in the slices of a Service.
func endpoints(truth model.Truth, owner model.Owner, service types.UID) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, o := range truth.Owned(model.Slices, owner) {
		if ref := metav1.GetControllerOfNoCopy(o); ref.UID != service {
			continue
		}
		for _, e := range readyIn(o) {
			out[e] = true
		}
	}
	return out
}

func readyIn(slice model.Object) (out []types.UID) {
	for _, e := range slice.(*discoveryv1.EndpointSlice).Endpoints {
		if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
			out = append(out, e.TargetRef.UID)
		}
	}
	return out
}

// judgeServices notes how the Services stand after a change, and judges one of their slices by the server's state.
func (j *Judge) judgeServices(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	v := &j.services
	if len(v.schedule.Services) == 0 || r != model.Pods && r != model.Nodes && r != model.Services && r != model.Slices || r == model.Nodes && old != nil && now != nil {
		return
	}
	if r == model.Nodes && now == nil {
		v.gone[old.GetName()] = true
	}
	pods := map[types.UID]*corev1.Pod{}
	for _, o := range truth.List(model.Pods) {
		p := o.(*corev1.Pod)
		pods[p.UID] = p
		if since, known := v.ready[p.UID]; !servable(truth, p) {
			delete(v.ready, p.UID)
		} else if !known || since.IsZero() {
			v.ready[p.UID] = at
		}
	}
	for _, s := range v.schedule.Services {
		owner := ServiceOwner(s.Name)
		service, there := truth.Get(model.Services, owner.Namespace, owner.Name).(*corev1.Service)
		missing, stray := false, false
		if there {
			is := endpoints(truth, owner, service.UID)
			lacked := map[types.UID]bool{}
			for uid := range v.ready {
				if !is[uid] && pods[uid] != nil && pods[uid].Labels["app"] == service.Spec.Selector["app"] {
					lacked[uid], missing = true, true
				}
			}
			v.lacks(j, owner, pods, lacked, at)
			for uid := range is {
				_, ready := v.ready[uid]
				stray = stray || !ready || pods[uid] == nil || pods[uid].Labels["app"] != service.Spec.Selector["app"]
			}
		}
		if !there {
			delete(v.lacked, owner)
		}
		turn(v.missing, j.record.Missing, owner, missing, at, j.began)
		turn(v.stray, j.record.Stray, owner, stray, at, j.began)
	}
	if r == model.Slices && old != nil && !j.values.sent.IsZero() {
		j.judgeSlice(truth, old, pods, at)
	}
}

// lacks notes which pods a Service lacks, and judges for how long: a node that the cache lacks is looked up.
func (v *services) lacks(j *Judge, owner model.Owner, pods map[types.UID]*corev1.Pod, now map[types.UID]bool, at time.Time) {
	since := v.lacked[owner]
	if since == nil {
		since = map[types.UID]time.Time{}
		v.lacked[owner] = since
	}
	for uid := range now {
		if _, known := since[uid]; !known && !v.gone[pods[uid].Spec.NodeName] {
			since[uid] = at
		}
	}
	for uid, from := range since {
		if now[uid] {
			continue
		}
		v.lackedFor(j, owner, from, at)
		delete(since, uid)
	}
}

// lackedFor judges a time during which a Service lacked a pod: the longest part of it that no fault excuses.
func (v *services) lackedFor(j *Judge, owner model.Owner, from, to time.Time) {
	if v.schedule.LateNodes > lookedUp {
		return
	}
	for at := from; at.Before(to); at = at.Add(time.Second) {
		if v.schedule.EndpointsTouchedAt(at.Sub(j.began)) {
			from = at
		}
	}
	if lacked := to.Sub(from); lacked > lacks {
		j.unjustified(endpointRule, "at %s %s has lacked a pod for %s that was ready on a node that was there", to.Sub(j.began).Round(time.Millisecond), owner, lacked)
	}
}

// judgeSlice judges what a slice's Service has no more: no pod that is ready, on a node that is there. What is stale in other caches than
// that of the nodes, and a node that the cache has seen go, are as with stock.
func (j *Judge) judgeSlice(truth model.Truth, old model.Object, pods map[types.UID]*corev1.Pod, at time.Time) {
	v, late := &j.services, at.Sub(j.began)
	ref := metav1.GetControllerOfNoCopy(old)
	if ref == nil || v.schedule.EndpointsTouchedAt(late) {
		return
	}
	owner := ServiceOwner(ref.Name)
	service, there := truth.Get(model.Services, owner.Namespace, owner.Name).(*corev1.Service)
	if !there || service.UID != ref.UID {
		return
	}
	is := endpoints(truth, owner, service.UID)
	for _, uid := range readyIn(old) {
		p := pods[uid]
		since, ready := v.ready[uid]
		if is[uid] || !ready || at.Sub(since) < served || p.Labels["app"] != service.Spec.Selector["app"] || v.gone[p.Spec.NodeName] {
			continue
		}
		j.unjustified(endpointRule, "at %s pod %s on %s, ready since %s, is left out of %s", late.Round(time.Millisecond), p.Name, p.Spec.NodeName, since.Sub(j.began).Round(time.Millisecond), owner)
	}
}

// looksUp notes a node that the controller of EndpointSlices reads from the server, which is to keep to the budget of live reads.
func (j *Judge) looksUp(r *model.Request) {
	if r.Verb != "get" || r.Resource != model.Nodes || !strings.Contains(r.Agent, model.SliceClient) {
		return
	}
	j.services.looked++
	if most := livereads.DefaultBurst + 1 + int(time.Since(j.began).Seconds()*float64(livereads.DefaultRate)); j.services.looked > most {
		j.unjustified("budget of reads", "%d nodes looked up in %s", j.services.looked, time.Since(j.began))
	}
}

// endServices ends what is open.
func (j *Judge) endServices(at time.Time) {
	for _, s := range j.services.schedule.Services {
		owner := ServiceOwner(s.Name)
		for _, from := range j.services.lacked[owner] {
			j.services.lackedFor(j, owner, from, at)
		}
		leave(j.services.missing, j.record.Missing, owner, at, j.began)
		leave(j.services.stray, j.record.Stray, owner, at, j.began)
	}
}

// compareServices says where ours lacks endpoints for longer than stock, has wrong ones for longer, or writes more for them.
func compareServices(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	for _, service := range s.Services {
		owner, fault := ServiceOwner(service.Name), s.TouchedService(service)
		_, _, lacked, _ := sum(ours.Missing[owner])
		_, _, left, _ := sum(stock.Missing[owner])
		more := moreRequests
		if left > lacked+afterFault {
			more += leftToDo // Stock has left its slices as they were.
		}
		for what, n := range ours.Requests[owner] {
			if was := stock.Requests[owner][what]; n > was*5/4+more {
				add("requests", "%s: %d times %s, stock %d", owner, n, what, was)
			}
		}
		for _, c := range []struct {
			rule        string
			ours, stock []Span
		}{{"endpoint missing", ours.Missing[owner], stock.Missing[owner]}, {"endpoint stray", ours.Stray[owner], stock.Stray[owner]}} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, open := sum(c.stock)
			limit := moreMost
			if fault > 0 {
				limit = fault + afterFault
			}
			switch {
			case ourOpen && !open && ourMost > most+limit:
				add("end", "%s: %s not ended for the last %s, stock's is", owner, c.rule, c.ours[len(c.ours)-1].For)
			case open:
			case fault > 0 && ourAll > all*5/4+limit:
				add(c.rule, "%s: %s in %d times, stock %s in %d", owner, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0:
			case ourMean > mean+moreMean && ourAll > all+moreMean:
				add(c.rule, "%s: mean %s of %d, stock %s of %d", owner, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+limit:
				add(c.rule, "%s: most %s, stock %s", owner, ourMost, most)
			}
		}
	}
	return out
}
