// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// The rules by which the garbage collector is judged.
const (
	// Collected: what has an owner that is there and not being deleted was deleted.
	Collected = "collection"
	// Orphaned: what its owner's deletion was to leave behind was deleted because it still referred to that owner.
	Orphaned = "orphans"
	// OrphanedLost is the same of what was made by an event that was lost, behind which the cache has gone on: no resource version shows it.
	OrphanedLost = "orphans of a lost event"
	// Foreground: an owner went although a dependent was there that its deletion was to wait for: what a controller of Kubernetes makes.
	Foreground = "foreground"
	// ForegroundOthers is the same of other dependents, for which ours waits no more than stock.
	ForegroundOthers = "foreground of others"

	ownerLingers = "owner lingers"
)

const (
	// lingers is for how much longer an owner may wait for its dependents: two proofs of one resource are 2 s apart, and a custom one may wait
	// its turn.
	lingers = 3 * time.Second
	// moreCollecting requests of the garbage collector, besides a quarter of stock's.
	moreCollecting = 20
	// mostPolls of an owner that is not seen: with upstream's backoff from 5 ms on there are 14 in the longest hold of DrawCollections.
	mostPolls = 15
)

// familyKinds are the resources of owners and dependents.
var familyKinds = []*model.Resource{model.ConfigMaps, model.Widgets, model.Pods, model.RCs, model.ReplicaSets, model.StatefulSets, model.Revisions, model.Deployments, model.Jobs}

// collections is how the families of a schedule stand.
type collections struct {
	schedule schedule.Schedule
	families []schedule.Family
	// made is when an object was, polls how often the garbage collector has asked for it while it cannot have seen it.
	made               map[types.UID]time.Time
	polls              map[types.UID]int
	garbage, lingering map[string]time.Time
	// orphans are the dependents that are to be left behind by an owner, blocking those that its deletion is to wait for.
	orphans, blocking map[types.UID]map[types.UID]bool
}

// familyObjects are all that may be owners and dependents.
func familyObjects(truth model.Truth) map[types.UID]model.Object {
	there := map[types.UID]model.Object{}
	for _, kind := range familyKinds {
		for _, o := range truth.List(kind) {
			there[o.GetUID()] = o
		}
	}
	return there
}

// judgeFamilies notes how the families stand after a change, and judges the end of an owner.
func (j *Judge) judgeFamilies(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	c := &j.collections
	if len(c.families) == 0 || !slices.Contains(familyKinds, r) {
		return
	}
	there := familyObjects(truth)
	if old == nil {
		c.made[now.GetUID()] = at
	}
	if now != nil && now.GetDeletionTimestamp() != nil && (old == nil || old.GetDeletionTimestamp() == nil) {
		c.begins(now, there)
	}
	if now == nil {
		for uid := range c.blocking[old.GetUID()] {
			if o := there[uid]; o != nil && refersTo(o, old.GetUID(), true) {
				rule := ForegroundOthers
				if kind := o.GetObjectKind().GroupVersionKind().Kind; kind == model.Pods.Kind || kind == model.ReplicaSets.Kind {
					rule = Foreground
				}
				j.unjustified(rule, "at %s %s %s is gone before %s", at.Sub(j.began).Round(time.Millisecond), r.Kind, old.GetName(), o.GetName())
			}
		}
		delete(c.blocking, old.GetUID())
	}
	garbage, lingering := map[string]bool{}, map[string]bool{}
	for _, o := range there {
		name := o.GetLabels()[traffic.FamilyLabel]
		switch {
		case o.GetDeletionTimestamp() != nil:
			lingering[name] = lingering[name] || slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents) || slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
		case slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return there[ref.UID] == nil }):
			garbage[name] = true
		}
	}
	for _, f := range c.families {
		turn(c.garbage, j.record.Garbage, f.Name, garbage[f.Name], at, j.began)
		turn(c.lingering, j.record.Lingering, f.Name, lingering[f.Name], at, j.began)
	}
}

// begins notes what an owner has when its deletion begins.
func (c *collections) begins(owner model.Object, there map[types.UID]model.Object) {
	for _, f := range owner.GetFinalizers() {
		of := map[string]map[types.UID]map[types.UID]bool{metav1.FinalizerOrphanDependents: c.orphans, metav1.FinalizerDeleteDependents: c.blocking}[f]
		if of == nil {
			continue
		}
		dependents := map[types.UID]bool{}
		for uid, o := range there {
			if o.GetDeletionTimestamp() == nil && refersTo(o, owner.GetUID(), f == metav1.FinalizerDeleteDependents) {
				dependents[uid] = true
			}
		}
		of[owner.GetUID()] = dependents
	}
}

// refersTo says that an object has a reference to an owner, or one that blocks its deletion.
func refersTo(o model.Object, owner types.UID, blocking bool) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner && (!blocking || ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion)
	})
}

// byCollector says that the garbage collector sent the request.
func byCollector(r *model.Request) bool { return strings.Contains(r.Agent, arms.CollectorClient) }

// observePoll notes that the garbage collector asks for an object that was made while its resource is held. Upstream polls what it knows only as
// the owner of something else until it sees it, and asks for its owner, too, each time.
func (j *Judge) observePoll(truth model.Truth, r *model.Request) {
	c := &j.collections
	if r.Verb != "get" || !slices.Contains(familyKinds, r.Resource) {
		return
	}
	object := truth.Get(r.Resource, r.Namespace, r.Name)
	if object == nil || c.polls[object.GetUID()] == mostPolls {
		return
	}
	if j.madeDuring(schedule.Hold, r, object, time.Since(j.began)) {
		c.polls[object.GetUID()]++
		j.record.Polls++
	}
}

// madeDuring says that the object of a request was made during a step about its resource that ends after a time.
func (j *Judge) madeDuring(action schedule.Action, r *model.Request, object model.Object, after time.Duration) bool {
	made := j.collections.made[object.GetUID()].Sub(j.began)
	return slices.ContainsFunc(j.collections.schedule.Steps, func(s schedule.Step) bool {
		return s.Action == action && s.Target == r.GroupVersionResource.Resource && made >= s.At && made <= s.At+s.For && after <= s.At+s.For
	})
}

// judgeCollection judges a deletion by the garbage collector by the server's state: an owner that was gone does not come back, and the
// request carries the version of the object of which its owners were looked up.
func (j *Judge) judgeCollection(truth model.Truth, r *model.Request) {
	if r.Verb != "delete" {
		return
	}
	object := truth.Get(r.Resource, r.Namespace, r.Name)
	if object == nil || !r.Deletes(object) || object.GetDeletionTimestamp() != nil {
		return
	}
	there := familyObjects(truth)
	late, left := r.Arrived.Sub(j.began).Round(time.Millisecond), true
	for _, ref := range object.GetOwnerReferences() {
		owner := there[ref.UID]
		if owner != nil && (owner.GetDeletionTimestamp() == nil || !slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents)) {
			j.unjustified(Collected, "at %s %s %s, whose owner %s %s is there", late, r.Kind, r.Name, ref.Kind, ref.Name)
			return
		}
		left = left && j.collections.orphans[ref.UID][object.GetUID()]
	}
	if left {
		rule := Orphaned
		if j.madeDuring(schedule.LoseEvent, r, object, 0) {
			rule = OrphanedLost
		} else {
			j.record.Orphaned[object.GetLabels()[traffic.FamilyLabel]] = true
		}
		j.unjustified(rule, "at %s %s %s, which its owner's deletion was to leave behind", late, r.Kind, r.Name)
	}
}

// endFamilies ends what is open.
func (j *Judge) endFamilies(at time.Time) {
	for _, f := range j.collections.families {
		leave(j.collections.garbage, j.record.Garbage, f.Name, at, j.began)
		leave(j.collections.lingering, j.record.Lingering, f.Name, at, j.began)
	}
}

// collectorExcused says that a wrong action of the garbage collector is one of those that no proof shows, and ours does no more of them than
// stock.
func collectorExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	switch v.Rule {
	case Orphaned, Foreground:
		return !s.Provable() && ours.broke(v.Rule) <= stock.broke(v.Rule)
	case OrphanedLost:
		return true // Stock does it, too, when its informer relists, which the monitor has ours do.
	case ForegroundOthers:
		return ours.broke(v.Rule) <= stock.broke(v.Rule)
	}
	return false
}

// broke is how often a rule was broken.
func (r Record) broke(rule string) (n int) {
	for _, v := range r.Unjustified {
		if v.Rule == rule {
			n++
		}
	}
	return n
}

// compareFamilies says where ours leaves garbage for longer than stock, has owners wait for longer, or asks more of the server for it.
func compareFamilies(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	fault := s.TouchedFamily()
	for _, f := range s.Families {
		for _, c := range []struct {
			rule        string
			ours, stock []Span
			mean, most  time.Duration
		}{
			{"garbage", ours.Garbage[f.Name], stock.Garbage[f.Name], moreMean, moreMost},
			{ownerLingers, ours.Lingering[f.Name], stock.Lingering[f.Name], lingers, lingers + moreMost},
		} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, open := sum(c.stock)
			limit := c.most
			if fault > 0 {
				limit = fault + afterFault
			}
			if c.rule == ownerLingers && stock.Orphaned[f.Name] && !ours.Orphaned[f.Name] {
				// Stock's owner went before its dependents were seen. Ours writes them, and the backoff is as long as writes have failed by then.
				limit += fault
			}
			switch {
			case ourOpen && !open:
				add("end", "%s: %s not ended for the last %s, stock's is", f.Name, c.rule, last(c.ours).For)
			case open:
			case fault > 0 && ourAll > all*5/4+limit:
				add(c.rule, "%s: %s in %d times, stock %s in %d", f.Name, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0:
			case ourMean > mean+c.mean && ourAll > all+c.mean:
				add(c.rule, "%s: mean %s of %d, stock %s of %d", f.Name, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+limit:
				add(c.rule, "%s: most %s, stock %s", f.Name, ourMost, most)
			}
		}
	}
	// What others make while it is not seen is polled on both sides; there is more of it where an owner has ended sooner, and was made again.
	total := func(of map[string]int) (n int) {
		for _, requests := range of {
			n += requests
		}
		return n
	}
	if n, was := total(ours.Collecting)-2*max(0, ours.Polls-stock.Polls), total(stock.Collecting); n > was*5/4+moreCollecting {
		add("requests", "of the garbage collector: %v and %d polls, stock %v and %d polls", ours.Collecting, ours.Polls, stock.Collecting, stock.Polls)
	}
	return out
}
