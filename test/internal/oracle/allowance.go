// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// RuleBudgetStatus is broken by a disruption budget that comes to allow more evictions than its pods do: the apiserver lets them go.
	RuleBudgetStatus = "status of a budget that its pods contradict"
	// RuleQuotaStatus is broken by a quota that comes to count fewer pods than there are: the apiserver lets more in.
	RuleQuotaStatus = "status of a quota that its pods contradict"
)

// Service accounts of the controllers that write these.
const (
	DisruptionController = "disruption-controller"
	QuotaController      = "resourcequota-controller"
)

// allowancesWronged judges what the apiserver lets others do by a status: evictions that a budget comes to allow, and pods that a quota
// comes to count no more. A value that goes the other way, or stays, lets nobody do more than before. It needs pods, poddisruptionbudgets
// and resourcequotas recorded.
func (w *world) allowancesWronged() (out []Violation) {
	for _, l := range w.of(truth.PodDisruptionBudgets) {
		w.changes(l, "status", func(before, e truth.Event) bool {
			return e.Type == watch.Modified && budget(e).Status.DisruptionsAllowed > budget(before).Status.DisruptionsAllowed
		}, func(_, e truth.Event, request *controlplane.AuditEvent) {
			if By(request) == DisruptionController {
				out = l.wronged(out, RuleBudgetStatus, e, w.budgetContradicted(budget(e), e, request))
			}
		})
	}
	for _, l := range w.of(truth.ResourceQuotas) {
		w.changes(l, "status", func(before, e truth.Event) bool {
			counted := quota(e).Status.Used[corev1.ResourcePods]
			had, known := quota(before).Status.Used[corev1.ResourcePods]
			return e.Type == watch.Modified && (!known || counted.Cmp(had) < 0)
		}, func(_, e truth.Event, request *controlplane.AuditEvent) {
			if By(request) == QuotaController {
				out = l.wronged(out, RuleQuotaStatus, e, w.quotaContradicted(quota(e), e, request))
			}
		})
	}
	return out
}

// budgetContradicted says by how much a budget allows more evictions than pods are healthy beyond those that it wants. Where that is not a
// number, what its status says that it wants is believed.
func (w *world) budgetContradicted(b *policyv1.PodDisruptionBudget, e truth.Event, request *controlplane.AuditEvent) string {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return ""
	}
	wanted := b.Status.DesiredHealthy
	if least := b.Spec.MinAvailable; least != nil && least.Type == intstr.Int {
		wanted = least.IntVal
	}
	healthy := int32(0)
	for _, l := range w.of(truth.Pods) {
		if w.lately(l, e.RV-1, request, func(e truth.Event) bool {
			p := pod(e)
			return p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) && !deletes(e) && podutil.IsPodReady(p)
		}) {
			healthy++
		}
	}
	if allowed := max(0, healthy-wanted); b.Status.DisruptionsAllowed > allowed {
		return fmt.Sprintf("it allows %d evictions, %d pods are healthy, and %d are wanted", b.Status.DisruptionsAllowed, healthy, wanted)
	}
	return ""
}

// quotaContradicted says by how much a quota for all pods of its namespace counts fewer than there are.
func (w *world) quotaContradicted(q *corev1.ResourceQuota, e truth.Event, request *controlplane.AuditEvent) string {
	used, counts := q.Status.Used[corev1.ResourcePods]
	if !counts || len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
		return ""
	}
	there := int64(0)
	for _, l := range w.of(truth.Pods) {
		if w.known(l, e.RV-1, request, func(e truth.Event) bool { return e.Namespace == q.Namespace && !deletes(e) && !Ended(pod(e)) }) {
			there++
		}
	}
	if used.Value() < there {
		return fmt.Sprintf("it counts %d pods, and there are %d", used.Value(), there)
	}
	return ""
}

// lately reports whether something was so of an object at any time that an action may rest on, when a request arrived that was carried out
// after a resource version.
func (w *world) lately(l *life, rv uint64, request *controlplane.AuditEvent, is func(truth.Event) bool) bool {
	from := request.RequestReceivedTimestamp.Add(-promised - w.a.lag)
	so := false
	for _, e := range l.events {
		if e.RV > rv && !e.Initial {
			break
		}
		if so && !e.Time.Before(from) {
			return true // It was until then.
		}
		so = e.Type != watch.Deleted && is(e)
	}
	return so
}

func budget(e truth.Event) *policyv1.PodDisruptionBudget {
	return e.Object.(*policyv1.PodDisruptionBudget)
}
func quota(e truth.Event) *corev1.ResourceQuota { return e.Object.(*corev1.ResourceQuota) }
