// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Rules of S2 about deletions of any resource.
const (
	// RuleOwned is broken by the garbage collector if it deletes what has an owner, or has none and never had.
	RuleOwned = "object deleted though its owner is there"
	// RuleNamespaceStays is broken by the namespace controller if it deletes what is in a namespace that is not being deleted.
	RuleNamespaceStays = "object deleted of a namespace that stays"
	// RuleJobRuns is broken by the deletion of a Job as finished that is not.
	RuleJobRuns = "Job deleted that runs"
)

// Service accounts of controllers that delete what others have made.
const (
	GarbageCollector     = "generic-garbage-collector"
	NamespaceController  = "namespace-controller"
	CronJobController    = "cronjob-controller"
	ttlAfterFinished     = "ttl-after-finished-controller"
	foregroundFinalizer  = metav1.FinalizerDeleteDependents
	orphanFinalizer      = metav1.FinalizerOrphanDependents
	controllerOfCronJobs = "CronJob"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// deletionsWronged judges deletions of any resource, as far as its metadata say whether they were right.
func (w *world) deletionsWronged() (out []Violation) {
	for _, l := range w.lives {
		for i, e := range l.events[1:] {
			before := l.events[i]
			if deletes(before) || e.Type != watch.Deleted && !deletes(e) {
				continue
			}
			request := w.a.deletion(l.resource, before, e)
			if request == nil {
				continue
			}
			rule, detail := "", ""
			switch By(request) {
			case GarbageCollector:
				rule, detail = RuleOwned, w.owned(l, before, e, request)
			case NamespaceController:
				rule, detail = RuleNamespaceStays, w.stays(e)
			case CronJobController, ttlAfterFinished:
				rule, detail = RuleJobRuns, w.runs(before, e, request)
			}
			if detail != "" {
				out = l.wronged(out, rule, e, detail+", by "+By(request))
			}
		}
	}
	return out
}

// owned says which owner an object had that the garbage collector has deleted. An owner that waits for its dependents to be deleted is none, nor
// is one of another name or namespace than the dependent says: that is never found.
func (w *world) owned(l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	refs := metaOf(before).GetOwnerReferences()
	if len(refs) == 0 && w.known(l, e.RV-1, request, func(e truth.Event) bool { return len(metaOf(e).GetOwnerReferences()) == 0 }) {
		return "it has had no owner"
	}
	for _, ref := range refs {
		owner := w.byUID[ref.UID]
		if owner == nil || !w.known(l, e.RV-1, request, refersTo(ref.UID, false)) {
			continue
		}
		if w.known(owner, e.RV-1, request, func(o truth.Event) bool {
			waits := deletes(o) && slices.Contains(metaOf(o).GetFinalizers(), foregroundFinalizer)
			return o.Name == ref.Name && (o.Namespace == "" || o.Namespace == e.Namespace) && !waits
		}) {
			return ref.Kind + " " + ref.Name + " is there"
		}
	}
	return ""
}

// stays says that the namespace of an object was not being deleted.
func (w *world) stays(e truth.Event) string {
	for _, l := range w.of(namespaces) {
		if n, there := l.at(e.RV - 1); there && n.Name == e.Namespace && !deletes(n) {
			return "its namespace is not being deleted"
		}
	}
	return ""
}

// runs says that a Job had not finished, and was not to be replaced by the next one of its CronJob.
func (w *world) runs(before, e truth.Event, request *controlplane.AuditEvent) string {
	job, ok := before.Object.(*batchv1.Job)
	if !ok || jobutil.IsJobFinished(job) {
		return ""
	}
	if By(request) == ttlAfterFinished {
		return "it has not finished"
	}
	ref := metav1.GetControllerOfNoCopy(job)
	if ref == nil || ref.Kind != controllerOfCronJobs || w.byUID[ref.UID] == nil {
		return ""
	}
	if w.known(w.byUID[ref.UID], e.RV-1, request, func(e truth.Event) bool {
		cronJob, ok := e.Object.(*batchv1.CronJob)
		return ok && cronJob.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent
	}) {
		return "it has not finished, and is not to be replaced"
	}
	return ""
}
