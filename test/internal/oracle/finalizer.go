// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// RuleFinalizer is broken by a controller that takes its finalizer off while what that protects needs it.
const RuleFinalizer = "finalizer taken off while it is needed"

// needs says what still needs a finalizer that a request has taken off an object: what it was before, and when that was.
type needs func(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string

// finalizers are those that a controller takes off: of others nothing is known here.
var finalizers = map[string]struct {
	by    string
	needs needs
}{
	orphanFinalizer:                             {GarbageCollector, dependentsLeft(false)},
	foregroundFinalizer:                         {GarbageCollector, dependentsLeft(true)},
	volumeutil.PVCProtectionFinalizer:           {"pvc-protection-controller", claimUsed},
	volumeutil.PVProtectionFinalizer:            {"pv-protection-controller", volumeBound},
	volumeutil.VACProtectionFinalizer:           {"volumeattributesclass-protection-controller", classUsed},
	batchv1.JobTrackingFinalizer:                {JobController, endNotCounted},
	servicecidrs.ServiceCIDRProtectionFinalizer: {"service-cidrs-controller", addressesLeft},
	scheduling.PodGroupProtectionFinalizer:      {"podgroup-protection-controller", groupUsed},
}

// JobController is the service account's name.
const JobController = "job-controller"

// finalizersWronged judges finalizers that their controllers have taken off. The last one that goes takes an object that is being deleted with it.
func (w *world) finalizersWronged() (out []Violation) {
	for _, l := range w.lives {
		for finalizer, f := range finalizers {
			has := func(e truth.Event) bool { return slices.Contains(metaOf(e).GetFinalizers(), finalizer) }
			w.changes(l, "", func(before, e truth.Event) bool {
				return has(before) && (!has(e) || e.Type == watch.Deleted)
			}, func(before, e truth.Event, request *controlplane.AuditEvent) {
				if By(request) != f.by || request.Verb != "update" && request.Verb != "patch" {
					return
				}
				if why := f.needs(w, l, before, e, request); why != "" {
					out = append(out, Violation{Oracle: "S2", Rule: RuleFinalizer, Object: l.describe(), RV: e.RV, Time: e.Time, Detail: finalizer + ": " + why})
				}
			})
		}
	}
	return out
}

// dependentsLeft finds dependents of an owner. Those that are to be orphaned must not be deleted when their owner has gone; the others are to be
// gone before it, if they block its deletion.
func dependentsLeft(blocking bool) needs {
	return func(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
		for _, dependent := range w.dependents[before.UID] {
			refers := refersTo(before.UID, blocking)
			if w.known(dependent, e.RV-1, request, func(d truth.Event) bool {
				here := before.Namespace == "" || before.Namespace == d.Namespace
				return here && refers(d) && (blocking || !deletes(d))
			}) {
				return dependent.describe() + " has it as its owner"
			}
		}
		return ""
	}
}

// claimUsed finds a pod that runs with a claim.
func claimUsed(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	claim, ok := before.Object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return ""
	}
	return w.user(e, request, func(p *corev1.Pod) bool {
		shutDown := p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
		return p.Namespace == claim.Namespace && p.Spec.NodeName != "" && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
				v.Ephemeral != nil && !shutDown && ephemeral.VolumeClaimName(p, &v) == claim.Name && ephemeral.VolumeIsForPod(p, claim) == nil
		})
	})
}

// groupUsed finds a pod that names a PodGroup and has not ended.
func groupUsed(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	return w.user(e, request, func(p *corev1.Pod) bool {
		group := p.Spec.SchedulingGroup
		return p.Namespace == before.Namespace && group != nil && group.PodGroupName != nil && *group.PodGroupName == before.Name && !Ended(p)
	})
}

// user names a pod that uses something.
func (w *world) user(e truth.Event, request *controlplane.AuditEvent, uses func(*corev1.Pod) bool) string {
	for _, l := range w.of(truth.Pods) {
		if w.known(l, e.RV-1, request, func(e truth.Event) bool { return uses(pod(e)) }) {
			return "pod " + l.events[0].Name + " uses it"
		}
	}
	return ""
}

// volumeBound says that a volume was.
func volumeBound(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	bound := func(e truth.Event) bool {
		volume, ok := e.Object.(*corev1.PersistentVolume)
		return ok && volume.Status.Phase == corev1.VolumeBound && volume.Spec.ClaimRef != nil
	}
	if !w.known(l, e.RV-1, request, bound) {
		return ""
	}
	claim := before.Object.(*corev1.PersistentVolume).Spec.ClaimRef
	return "it is bound to " + claim.Namespace + "/" + claim.Name
}

// classUsed finds a claim or a volume that names a VolumeAttributesClass.
func classUsed(w *world, _ *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	names := func(class *string) bool { return class != nil && *class == before.Name }
	for _, l := range slices.Concat(w.of(truth.PersistentVolumeClaims), w.of(truth.PersistentVolumes)) {
		if w.known(l, e.RV-1, request, func(e truth.Event) bool {
			switch object := e.Object.(type) {
			case *corev1.PersistentVolumeClaim:
				return names(object.Spec.VolumeAttributesClassName) || names(object.Status.CurrentVolumeAttributesClassName)
			case *corev1.PersistentVolume:
				return names(object.Spec.VolumeAttributesClassName)
			}
			return false
		}) {
			return l.describe() + " uses it"
		}
	}
	return ""
}

// addressesLeft finds an address that no other ServiceCIDR has.
func addressesLeft(w *world, _ *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	contains := func(e truth.Event, address netip.Addr) bool {
		cidr, ok := e.Object.(*networkingv1.ServiceCIDR)
		return ok && slices.ContainsFunc(cidr.Spec.CIDRs, func(text string) bool {
			prefix, err := netip.ParsePrefix(text)
			return err == nil && prefix.Contains(address)
		})
	}
	for _, l := range w.of(truth.IPAddresses) {
		address, err := netip.ParseAddr(l.events[0].Name)
		if err != nil || !contains(before, address) || !w.known(l, e.RV-1, request, func(truth.Event) bool { return true }) {
			continue
		}
		if !slices.ContainsFunc(w.of(truth.ServiceCIDRs), func(other *life) bool {
			cidr, there := other.at(e.RV - 1)
			return there && cidr.UID != before.UID && contains(cidr, address)
		}) {
			return "address " + address.String() + " is of it"
		}
	}
	return ""
}

// endNotCounted says that the end of a pod is still to be counted by its Job, which has not finished: the pod runs, and is not deleted by the
// controller next, or it is not among those that the Job's status says are being counted.
func endNotCounted(w *world, l *life, before, e truth.Event, request *controlplane.AuditEvent) string {
	p, ok := before.Object.(*corev1.Pod)
	if !ok {
		return ""
	}
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || w.byUID[ref.UID] == nil {
		return ""
	}
	now, there := w.byUID[ref.UID].at(e.RV - 1)
	job, ok := now.Object.(*batchv1.Job)
	if !there || !ok || deletes(now) || decided(job) || !w.known(l, e.RV-1, request, func(e truth.Event) bool {
		ref := metav1.GetControllerOfNoCopy(pod(e))
		return ref != nil && ref.UID == job.UID
	}) {
		return ""
	}
	switch counting := job.Status.UncountedTerminatedPods; {
	case counting != nil && slices.Contains(slices.Concat(counting.Succeeded, counting.Failed), p.UID):
		return ""
	case !Ended(p) && p.DeletionTimestamp == nil:
		if w.deletedNext(l, e) {
			return ""
		}
		return "it runs, and so does Job " + job.Name
	case indexed(job) || job.Spec.PodFailurePolicy != nil:
		return "" // which of those count the status does not say
	}
	return "its end is not counted by Job " + job.Name
}

// deletedNext says that the Job controller has deleted a pod after it has taken its finalizer off.
func (w *world) deletedNext(l *life, e truth.Event) bool {
	return slices.ContainsFunc(w.a.writes[place{truth.Pods, e.Namespace, e.Name}], func(r *controlplane.AuditEvent) bool {
		return By(r) == JobController && r.Verb == "delete" && r.ObjectRef.Subresource == "" && !r.RequestReceivedTimestamp.Before(e.Time.Add(-w.a.lag))
	})
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// decided says that a Job has finished, or that it has been decided how it will.
func decided(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && c.Type != batchv1.JobSuspended
	})
}

// podsOf are the pods that a Job has ever controlled.
func (w *world) podsOf(job types.UID) []*life {
	return slices.DeleteFunc(slices.Clone(w.dependents[job]), func(l *life) bool { return l.resource != truth.Pods })
}
