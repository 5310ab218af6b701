// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// The rules of S3. Each is something that the DaemonSet controller cannot do in a reconcile whose caches had
// all of the controller's own earlier writes for that DaemonSet.
const (
	// RuleStatusBehindPods: a status write counts fewer nodes with a pod than there were nodes with a pod
	// that the controller itself had created before its previous status write, and which lived until this
	// one. A status write ends a reconcile, so those pods were written by an earlier reconcile than the one
	// that counts them. (That the first status after a burst says 0 is no breach: that reconcile began
	// before the burst.)
	RuleStatusBehindPods = "status behind own pods"
	// RuleStatusBack: status.observedGeneration became lower.
	RuleStatusBack = "observedGeneration back"
	// RuleStatusConflict: a status write was refused (409) although the last successful write to the
	// DaemonSet was the controller's own: it was made on an object older than that write. What another one wrote at
	// the same moment may have come before it.
	RuleStatusConflict = "status conflicts with own write"
	// RuleRevisionAgain: the creation of a ControllerRevision was refused (409) because the controller had
	// created it before, since the last deletion of a DaemonSet of that name. One that is made again may find the revisions of the one
	// that was deleted, before they are collected.
	RuleRevisionAgain = "creates own revision again"
	// RuleRevisionNumber: two live revisions of one DaemonSet have the same number.
	RuleRevisionNumber = "duplicate revision number"
	// RuleCollision: status.collisionCount rose. No scenario makes hashes collide.
	RuleCollision = "collisionCount rose"
	// RuleDeleteAgain: the controller asked again for the deletion of a pod that it had deleted.
	RuleDeleteAgain = "deletes own deleted pod again"
	// RuleCreateAgain: the controller created a pod for a node on which one lived that it had created before
	// its latest status write.
	RuleCreateAgain = "creates for own pod's node again"
)

// BehindOwnWrites is S3 for every DaemonSet. It needs pods, daemonsets and controllerrevisions recorded, and
// all writes of the run.
func BehindOwnWrites(t *truth.Recorder, writes []controlplane.AuditEvent) []Violation {
	var out []Violation
	out = append(out, statuses(t)...)
	out = append(out, revisionNumbers(t)...)
	out = append(out, refused(writes)...)
	out = append(out, createdAgain(t)...)
	return sorted(out)
}

// statuses judges what the status writes say.
func statuses(t *truth.Recorder) []Violation {
	var out []Violation
	previous := map[types.UID]truth.Event{}
	lastWrite := map[types.UID]uint64{}
	for _, e := range t.Events(truth.DaemonSets) {
		if e.Type == watch.Deleted {
			continue
		}
		ds := daemonSet(e)
		before, known := previous[e.UID]
		previous[e.UID] = e
		if !known || apiequality.Semantic.DeepEqual(daemonSet(before).Status, ds.Status) {
			continue
		}
		was := daemonSet(before).Status
		violation := Violation{Oracle: "S3", Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time}
		if ds.Status.ObservedGeneration < was.ObservedGeneration {
			violation.Rule, violation.Detail = RuleStatusBack, fmt.Sprintf("%d after %d", ds.Status.ObservedGeneration, was.ObservedGeneration)
			out = append(out, violation)
		}
		if collisions(ds) > collisions(daemonSet(before)) {
			violation.Rule, violation.Detail = RuleCollision, fmt.Sprintf("%d after %d", collisions(ds), collisions(daemonSet(before)))
			out = append(out, violation)
		}
		if written, ok := lastWrite[e.UID]; ok {
			own := ownNodes(t, e.UID, written, e.RV)
			if said := int(ds.Status.CurrentNumberScheduled + ds.Status.NumberMisscheduled); said < own.Len() {
				violation.Rule = RuleStatusBehindPods
				violation.Detail = fmt.Sprintf("says %d nodes have a pod; %d had one that was created before the status write at %d", said, own.Len(), written)
				out = append(out, violation)
			}
		}
		lastWrite[e.UID] = e.RV
	}
	return out
}

func collisions(ds *appsv1.DaemonSet) int32 {
	if ds.Status.CollisionCount == nil {
		return 0
	}
	return *ds.Status.CollisionCount
}

// ownNodes returns the nodes with a pod that a DaemonSet's controller created before one resource version
// and that was still live at another. Nodes that are gone by then are not counted by a status either.
func ownNodes(t *truth.Recorder, set types.UID, before, at uint64) sets.Set[string] {
	nodes := sets.New[string]()
	for _, e := range t.At(truth.Nodes, at) {
		nodes.Insert(e.Name)
	}
	out := sets.New[string]()
	alive := t.At(truth.Pods, at)
	for _, e := range t.Events(truth.Pods) {
		if e.RV > before {
			break
		}
		last, ok := alive[e.UID]
		if e.Type == watch.Added && !e.Initial && DaemonSetOf(pod(e)) == set && ok && live(last) && nodes.Has(NodeOf(pod(e))) {
			out.Insert(NodeOf(pod(e)))
		}
	}
	return out
}

// revisionNumbers looks for two live revisions of one DaemonSet with one number.
func revisionNumbers(t *truth.Recorder) []Violation {
	var out []Violation
	live := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.ControllerRevisions) {
		if e.Type == watch.Deleted {
			delete(live, e.UID)
			continue
		}
		was, known := live[e.UID]
		live[e.UID] = e
		if known && revision(was).Revision == revision(e).Revision {
			continue
		}
		for uid, other := range live {
			if uid != e.UID && DaemonSetOf(revision(e)) != "" && DaemonSetOf(revision(other)) == DaemonSetOf(revision(e)) &&
				revision(other).Revision == revision(e).Revision {
				out = append(out, Violation{
					Oracle: "S3", Rule: RuleRevisionNumber, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time,
					Detail: fmt.Sprintf("has number %d as %s", revision(e).Revision, other.Name),
				})
			}
		}
	}
	return out
}

// refused judges the answers that the DaemonSet controller got.
func refused(writes []controlplane.AuditEvent) []Violation {
	var out []Violation
	lastWriter := map[string]string{} // of each DaemonSet
	created := sets.New[string]()     // revisions
	deleted := sets.New[string]()     // pods
	for i := range writes {
		e := &writes[i]
		own := e.ServiceAccount() == DaemonSetController
		violation := Violation{
			Oracle: "S3", Object: object(e), Time: e.StageTimestamp,
			Detail: fmt.Sprintf("%s %s%s: %d", e.Verb, e.ObjectRef.Resource, slash(e.ObjectRef.Subresource), e.ResponseStatus.Code),
		}
		conflict := e.ResponseStatus.Code == 409
		switch {
		case e.ObjectRef.Resource == "daemonsets" && e.ObjectRef.APIGroup == "apps":
			if own && conflict && lastWriter[object(e)] == DaemonSetController && !crossed(e, writes[i+1:]) {
				violation.Rule = RuleStatusConflict
				out = append(out, violation)
			}
			if succeeded(e) {
				lastWriter[object(e)] = e.ServiceAccount()
			}
			if succeeded(e) && e.Verb == "delete" {
				created = created.Difference(revisionsOf(object(e), created))
			}
		case own && e.ObjectRef.Resource == "controllerrevisions" && e.Verb == "create":
			if conflict && created.Has(object(e)) {
				violation.Rule = RuleRevisionAgain
				out = append(out, violation)
			}
			if succeeded(e) {
				created.Insert(object(e))
			}
		case own && e.ObjectRef.Resource == "pods" && e.Verb == "delete":
			if deleted.Has(object(e)) {
				violation.Rule = RuleDeleteAgain
				out = append(out, violation)
			}
			if succeeded(e) {
				deleted.Insert(object(e))
			}
		}
	}
	return out
}

// revisionsOf are those that have the name of a DaemonSet and a hash.
func revisionsOf(daemonSet string, revisions sets.Set[string]) sets.Set[string] {
	out := sets.New[string]()
	for revision := range revisions {
		if hash, ok := strings.CutPrefix(revision, daemonSet+"-"); ok && !strings.Contains(hash, "-") {
			out.Insert(revision)
		}
	}
	return out
}

// crossed reports whether somebody else's write to the same object was under way while one was refused, but answered later.
func crossed(refused *controlplane.AuditEvent, later []controlplane.AuditEvent) bool {
	return slices.ContainsFunc(later, func(e controlplane.AuditEvent) bool {
		return e.ObjectRef.Resource == refused.ObjectRef.Resource && object(&e) == object(refused) && succeeded(&e) &&
			e.ServiceAccount() != refused.ServiceAccount() && e.RequestReceivedTimestamp.Before(refused.StageTimestamp)
	})
}

func slash(subresource string) string {
	if subresource == "" {
		return ""
	}
	return "/" + subresource
}

// createdAgain looks for pods created where one of an earlier reconcile lived.
func createdAgain(t *truth.Recorder) []Violation {
	type own struct {
		truth.Event
		slot
	}
	var out []Violation
	ended, surging := statusWrites(t)
	alive := map[types.UID]own{}
	for _, e := range t.Events(truth.Pods) {
		if !live(e) {
			delete(alive, e.UID)
			continue
		}
		s := slot{DaemonSetOf(pod(e)), NodeOf(pod(e))}
		if e.Type != watch.Added || e.Initial || s.set == "" || surging.Has(s.set) {
			continue
		}
		for _, other := range alive {
			if other.slot == s && slices.ContainsFunc(ended[s.set], func(rv uint64) bool { return other.RV < rv && rv < e.RV }) {
				out = append(out, Violation{
					Oracle: "S3", Rule: RuleCreateAgain, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time,
					Detail: fmt.Sprintf("%s lives on node %s since %d", other.Name, s.node, other.RV),
				})
			}
		}
		alive[e.UID] = own{e, s}
	}
	return out
}

// statusWrites returns where each DaemonSet's status was changed, and which DaemonSets surge.
func statusWrites(t *truth.Recorder) (map[types.UID][]uint64, sets.Set[types.UID]) {
	written, surging := map[types.UID][]uint64{}, sets.New[types.UID]()
	previous := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.DaemonSets) {
		if surges(daemonSet(e)) {
			surging.Insert(e.UID)
		}
		before, known := previous[e.UID]
		previous[e.UID] = e
		if known && e.Type == watch.Modified && !apiequality.Semantic.DeepEqual(daemonSet(before).Status, daemonSet(e).Status) {
			written[e.UID] = append(written[e.UID], e.RV)
		}
	}
	return written, surging
}
