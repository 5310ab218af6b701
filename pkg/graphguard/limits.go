// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package graphguard

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// For so long at most an owner waits for a resource, by rvtracker.OwnerLimits for a built-in one. A dependent that is orphaned too late is
// deleted, so the limits are above what it takes to end a stalled watch, and to open another. The monitor sees that of a custom resource
// later, but an unrelated one must not hold up all others.
const (
	customStale = time.Minute
	// heldFailing is for a custom resource, and one of which nothing can be proven: that lasts, and the informer of neither is
	// going to be complete. It is since the resource could not be proven, if the owner came later.
	heldFailing = 10 * time.Second
	// forgetFailing is how long after that it is not known any more.
	forgetFailing = 30 * time.Second
)

// over is whether the owner has waited for long enough for the resource. mu must be held.
func (g *Guard) over(o *owner, f *followed, now time.Time) bool {
	a, limit := f.asking, rvtracker.OwnerLimits.Stale
	if f.custom() {
		limit = customStale
	}
	// A cache that was shown stale, and about which nothing is known since, still counts as stale for owners that came less than the limit after that.
	if !a.stale.IsZero() && !a.failing.IsZero() && o.since.Sub(a.stale) < limit {
		return now.Sub(o.since) >= limit
	}
	// An API whose versions cannot be compared goes on like that, and must not hold up owners of all others.
	if f.custom() && a.proof.Outcome == freshness.Unknown && a.proof.Reason == freshness.ReasonIncomparable {
		return true
	}
	if !f.custom() && !a.proof.Hopeless(a.failing) {
		return now.Sub(o.since) >= rvtracker.OwnerLimits.Unknown
	}
	failing := !a.failing.IsZero() && (a.running || now.Sub(a.ended) < forgetFailing)
	return failing && now.Sub(a.failing) >= heldFailing || now.Sub(o.since) >= heldFailing
}

var (
	podResource  = corev1.Resource("pods")
	workloads    = []schema.GroupResource{podResource, corev1.Resource("replicationcontrollers"), appsv1.Resource("replicasets"), appsv1.Resource("deployments"), appsv1.Resource("statefulsets"), appsv1.Resource("daemonsets"), batchv1.Resource("jobs"), batchv1.Resource("cronjobs"), corev1.Resource("persistentvolumeclaims")}
	blockingOnes = map[schema.GroupKind][]schema.GroupResource{
		corev1.SchemeGroupVersion.WithKind("ReplicationController").GroupKind(): {podResource},
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():            {podResource},
		appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind():            {appsv1.Resource("replicasets")},
		appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind():           {podResource, corev1.Resource("persistentvolumeclaims")},
		appsv1.SchemeGroupVersion.WithKind("DaemonSet").GroupKind():             {podResource},
		batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():                  {podResource},
		batchv1.SchemeGroupVersion.WithKind("CronJob").GroupKind():              {batchv1.Resource("jobs")},
	}
)

// counts reports whether the owner may have dependents of the resource. Those that block a deletion are what controllers of
// Kubernetes make for it, and workloads for an owner of another kind: if others are missing, they are deleted after their
// owner, and not before.
func counts(o consistency.GraphOwner, r consistency.GraphResource) bool {
	if o.Namespace != "" && !r.Namespaced {
		return false
	}
	if !o.Blocking {
		return true
	}
	of, known := blockingOnes[o.Kind]
	if !known {
		of = workloads
	}
	for _, resource := range of {
		if resource == r.GroupResource() {
			return true
		}
	}
	return false
}

// Waits returns the owners that wait now, in any order.
func (g *Guard) Waits() []livereads.PutOff {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]livereads.PutOff, 0, g.waiting)
	for _, o := range g.owners {
		if !o.proven.IsZero() {
			continue
		}
		what := "to orphan its dependents"
		if o.Blocking {
			what = "to end its foreground deletion"
		}
		w := livereads.PutOff{Object: o.Kind.Kind + " " + o.NamespacedName.String(), Since: o.since,
			For: "a proof that the graph has all dependents, " + what, Why: "the server is asked"}
		for f := range o.open {
			if w.Resource.Empty() || f.asking.proof.Outcome == freshness.Stale {
				w.Resource = f.GroupResource()
			}
			switch a := f.asking; {
			case a.behind:
				w.Resource, w.Why = f.GroupResource(), "its events are not worked off yet"
			case a.proof.Outcome != "" && !a.proof.Fresh():
				w.Resource, w.Why = f.GroupResource(), a.proof.String()
			}
			if f.asking.proof.Outcome == freshness.Stale {
				break
			}
		}
		out = append(out, w)
	}
	return out
}
