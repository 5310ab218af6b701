// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Deletion is one pod's deletion by a controller, as it really was.
type Deletion struct {
	// By is the controller's service account, or KubeControllerManager.
	By string
	// Pod is its last state before the deletion, RV the resource version of the deletion.
	Pod *corev1.Pod
	RV  uint64
	// Request is the controller's.
	Request controlplane.AuditEvent
	// Began is when the first request of the reconcile that decided on it arrived: the first deletion by the same controller of a pod
	// of the same owner since it last wrote the owner's status, which ends a reconcile.
	Began time.Time

	arrivals *arrivals
}

// since is from when on the reconcile need not know what others did.
func (d Deletion) since() time.Time { return d.Began.Add(-promised - d.arrivals.lag) }

// replaced returns the states of the owner that were in force at some time since then, but for now, its last before the deletion.
func (d Deletion) replaced(t *truth.Recorder, resource schema.GroupResource, now truth.Event) (out []truth.Event) {
	before := now
	for _, e := range t.Events(resource) {
		if e.UID != now.UID || e.RV >= d.RV {
			continue
		}
		// before was in force until e came.
		if before.RV < e.RV && e.Time.After(d.since()) {
			out = append(out, before)
		}
		before = e
	}
	return out
}

// Judge says why a deletion was right. Nothing means that it was not, or that this judge does not know.
type Judge func(t *truth.Recorder, d Deletion) (why string)

// Unjustified is S2. It judges what kube-controller-manager did, by whatever identity, verb and answer, on the true state when the
// request arrived:
//
//   - Each pod deleted must have a judge that says why. Deletions by delete and deletecollection count, also those that were answered
//     with an error of the server and were made all the same.
//   - Each ControllerRevision of a DaemonSet that the DaemonSet controller deletes must be neither the current one nor that of a live
//     pod, and there must be more than are to be kept.
//   - Each ReplicaSet that the Deployment controller deletes must have no live pods and be scaled to none.
//   - A node is marked Unknown, or tainted for not being Ready, only as deaths allow.
//   - A pod is marked not Ready only if its node is not Ready.
//   - What the garbage collector deletes, of any resource, has had an owner and has none now, what the namespace controller deletes is in a namespace
//     that is being deleted, and a Job that is deleted as finished is.
//   - A finalizer is taken off only when nothing needs it (finalizers says which): what is to be orphaned has no owner any more, what blocks a
//     deletion is gone, nothing uses a claim, a volume, a class, a PodGroup or a range of addresses, and the end of a pod is counted by its Job.
//   - A Job's status counts no more ends of pods than there were, and it finishes when none of them runs; a CronJob's status says nothing of Jobs
//     that these contradict. A disruption budget comes to allow no more evictions than healthy pods are more than it wants, and a quota to count no
//     fewer pods than there are.
//
// The last three rules judge what was recorded (truth.InUse, and with truth.Recorder.Rest the metadata of all else), and nothing where an
// owner is of a resource that was not, or where another's request may have made the change.
//
// Not judged here: deletions by other controllers of other objects, creations but by S1 and S3, finalizers and statuses but these. Those that a
// stale cache can make harmful have a scenario each; Undeclared finds the writes that package inventory has no rule for. Of a pod that the truth
// shows to have been deleted, and the audit log says nothing about, nobody can be blamed: Unasked returns them.
//
// It needs pods, nodes, daemonsets and controllerrevisions recorded. It compares resource versions wherever it can, which need no
// clock. Where times are compared it allows what the run itself shows the truth to be late by (see arrivals), and what the product
// promises: promised. A truth that was very late excuses too much: TooLate says so.
func Unjustified(t *truth.Recorder, writes []controlplane.AuditEvent, deaths Deaths, judges ...Judge) []Violation {
	var out []Violation
	a := newArrivals(t, writes)
	deleted, _ := deletions(t, a)
	for _, d := range deleted {
		why := a.terminating(d)
		for _, judge := range judges {
			if why == "" {
				why = judge(t, d)
			}
		}
		if why == "" {
			out = append(out, Violation{
				Oracle: "S2", Rule: RuleUnjustified, Object: d.Pod.Namespace + "/" + d.Pod.Name, RV: d.RV, Time: d.Request.StageTimestamp,
				Detail: fmt.Sprintf("by %s, on node %s", d.By, NodeOf(d.Pod)),
			})
		}
	}
	out = append(out, revisionsWronged(t, a)...)
	out = append(out, replicaSetsWronged(t, a)...)
	out = append(out, podsWronged(t, a)...)
	if w := newWorld(t, a); w != nil {
		out = slices.Concat(out, w.deletionsWronged(), w.finalizersWronged(), w.statusesWronged(), w.allowancesWronged())
	}
	return sorted(append(out, nodesWronged(t, a, deaths)...))
}

// promised is how old a proof may be that an action rests on, and what was read with it (docs/status.md). What somebody changed no
// longer ago an action need not know.
const promised = consistencystore.ProofAge

// latest is how late the truth may be: what is allowed in all is then at most twice what is promised, so an action on what changed
// 4 s before is judged in every run. Runs show 10 ms on an idle machine, and 0.8 s where compilers keep both cores busy.
const latest = promised

// deletions joins what the audit log says (who) with the truth (what it was at that moment), and returns besides the deletions that
// the audit log says nothing about.
func deletions(t *truth.Recorder, a *arrivals) (out []Deletion, unasked []truth.Event) {
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.Pods) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || !live(before) || live(e) {
			continue
		}
		request := a.deletion(truth.Pods, before, e)
		switch {
		case request == nil:
			unasked = append(unasked, e)
		case By(request) != "":
			d := Deletion{By: By(request), Pod: pod(before), RV: e.RV, Request: *request, arrivals: a}
			d.Began = began(out, a, d)
			out = append(out, d)
		}
	}
	return out, unasked
}

// terminating says that a pod's namespace was deleted before it, which is for ever.
func (a *arrivals) terminating(d Deletion) string {
	for _, namespace := range []string{"", d.Pod.Namespace} {
		for _, w := range a.writes[place{schema.GroupResource{Resource: "namespaces"}, namespace, d.Pod.Namespace}] {
			if w.Verb == "delete" && w.RequestReceivedTimestamp.Before(d.Request.RequestReceivedTimestamp) {
				return "its namespace is gone"
			}
		}
	}
	return ""
}

// TooLate returns a violation if the truth was later than latest. What S2 allows for that excuses too much then.
func TooLate(t *truth.Recorder, writes []controlplane.AuditEvent) []Violation {
	a := newArrivals(t, writes)
	if a.lag <= latest {
		return nil
	}
	return []Violation{{Oracle: "S2", Rule: RuleTooLate, Object: "truth", Time: a.latestAt, Detail: fmt.Sprintf("%v after the request, more than %v", a.lag, latest)}}
}

// Unasked returns the pods that were deleted though the audit log has no request for it. Nobody can be blamed, but where nothing was done to
// etcd or to an apiserver a request is missing from what all of S2 rests on. Where the truth was later than what is known of it (arrivals), a
// request counts as of before: so one for an earlier pod of that name is enough here.
func Unasked(t *truth.Recorder, writes []controlplane.AuditEvent) (out []Violation) {
	a := newArrivals(t, writes)
	_, unasked := deletions(t, a)
	for _, e := range unasked {
		if len(a.asked(truth.Pods, e)) > 0 {
			continue
		}
		out = append(out, Violation{Oracle: "S2", Rule: RuleUnasked, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time, Detail: "no request in the audit log"})
	}
	return out
}

// deletion returns the request that an object's deletion was made by, nil if none is known: the first one that was on its way after
// the object's last change before it, if possible one that was answered with success. It matters where names come back: what was answered
// before the object was made has deleted the one that had its name.
func (a *arrivals) deletion(resource schema.GroupResource, before, e truth.Event) *controlplane.AuditEvent {
	var found *controlplane.AuditEvent
	for _, w := range a.asked(resource, e) {
		if a.past(w, resource, before) {
			continue
		}
		if found == nil || succeeded(w) && !succeeded(found) ||
			succeeded(w) == succeeded(found) && w.RequestReceivedTimestamp.Before(found.RequestReceivedTimestamp) {
			found = w
		}
	}
	return found
}

// asked are the requests for the deletion of an object of this name that had arrived by then.
func (a *arrivals) asked(resource schema.GroupResource, e truth.Event) (out []*controlplane.AuditEvent) {
	for _, w := range slices.Concat(a.writes[place{resource, e.Namespace, e.Name}], a.writes[place{resource, e.Namespace, ""}]) {
		asks := w.Verb == "delete" && w.ObjectRef.Subresource == "" || w.Verb == "deletecollection" || w.Verb == "create" && w.ObjectRef.Subresource == "eviction"
		// It was made while the request was on its way. One whose answer was lost may be made later.
		if asks && !w.RequestReceivedTimestamp.After(e.Time) {
			out = append(out, w)
		}
	}
	return out
}

// past reports whether what a request changed came before the change before: it was recorded by then, or the object was made after it.
func (a *arrivals) past(w *controlplane.AuditEvent, resource schema.GroupResource, before truth.Event) bool {
	return a.answered(w, before.Time) || succeeded(w) && a.madeBetween(place{resource, before.Namespace, before.Name}, w.StageTimestamp, before.Time)
}

// madeBetween reports whether a request that came in between has made the object.
func (a *arrivals) madeBetween(at place, from, to time.Time) bool {
	return slices.ContainsFunc(a.writes[at], func(w *controlplane.AuditEvent) bool {
		came := w.RequestReceivedTimestamp
		return w.Verb == "create" && w.ObjectRef.Subresource == "" && succeeded(w) && came.After(from) && came.Before(to)
	})
}

// began returns when the reconcile that a deletion is of began to delete.
func began(earlier []Deletion, a *arrivals, d Deletion) time.Time {
	first := d.Request.RequestReceivedTimestamp
	owner := metav1.GetControllerOfNoCopy(d.Pod)
	if owner == nil {
		return first
	}
	ended := time.Time{}
	for _, w := range a.statuses[types.NamespacedName{Namespace: d.Pod.Namespace, Name: owner.Name}] {
		if By(w) == d.By && w.RequestReceivedTimestamp.Before(first) {
			ended = w.RequestReceivedTimestamp
		}
	}
	for _, other := range earlier {
		ref := metav1.GetControllerOfNoCopy(other.Pod)
		at := other.Request.RequestReceivedTimestamp
		if ref != nil && ref.UID == owner.UID && other.By == d.By && at.After(ended) && at.Before(first) {
			first = at
		}
	}
	return first
}

// DeletedBy counts the pods that each service account has deleted.
func DeletedBy(t *truth.Recorder, writes []controlplane.AuditEvent) map[string]int {
	out := map[string]int{}
	deleted, _ := deletions(t, newArrivals(t, writes))
	for _, d := range deleted {
		out[d.By]++
	}
	return out
}

// DaemonSetDeletes judges the deletions by the DaemonSet controller, and by the garbage collector for it,
// on the true state just before the deletion.
func DaemonSetDeletes(t *truth.Recorder, d Deletion) string {
	at := d.RV - 1
	set, ok := t.At(truth.DaemonSets, at)[DaemonSetOf(d.Pod)]
	if DaemonSetOf(d.Pod) == "" {
		return ""
	}
	if !ok || daemonSet(set).DeletionTimestamp != nil {
		return "its DaemonSet is gone"
	}
	if d.By != DaemonSetController {
		return ""
	}
	ds := daemonSet(set)
	if d.Pod.Status.Phase == corev1.PodFailed || d.Pod.Status.Phase == corev1.PodSucceeded {
		return "it has ended"
	}
	node, ok := t.Find(truth.Nodes, "", NodeOf(d.Pod), at)
	if !ok {
		return "its node is gone"
	}
	if _, stay := daemon.NodeShouldRunDaemonPod(logr.Discard(), node.Object.(*corev1.Node), ds); !stay {
		return "its node must not run it"
	}
	for _, other := range t.At(truth.Pods, at) {
		if other.UID != d.Pod.UID && DaemonSetOf(pod(other)) == ds.UID && NodeOf(pod(other)) == node.Name && live(other) {
			return "another one lives on its node"
		}
	}
	// A template that has no revision yet makes every pod an old one.
	if ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
		(currentHash(t, ds, at) == "" || d.Pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != currentHash(t, ds, at)) {
		return "it is of an old revision"
	}
	return ""
}

// currentHash returns the label of the revision that holds a DaemonSet's template, if there is one.
func currentHash(t *truth.Recorder, ds *appsv1.DaemonSet, at uint64) string {
	if r := current(t, ds, "DaemonSet", at); r != nil {
		return r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
	}
	return ""
}

// current returns the revision that holds a DaemonSet's template, or that of what it stands for, an object of that kind; nil if there is none.
func current(t *truth.Recorder, ds *appsv1.DaemonSet, kind string, at uint64) *appsv1.ControllerRevision {
	for _, e := range t.At(truth.ControllerRevisions, at) {
		if controllerOf(revision(e), kind) != ds.UID {
			continue
		}
		if match, err := daemon.Match(ds, revision(e)); err == nil && match {
			return revision(e)
		}
	}
	return nil
}
