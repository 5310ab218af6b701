// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

func readyIs(status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "a"}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
}

// A budget that comes to allow more evictions must have the healthy pods for it, now or as lately as an action may rest on.
func TestBudgetStatus(t *testing.T) {
	healthy, unhealthy := readyIs(corev1.ConditionTrue), readyIs(corev1.ConditionFalse)
	two := func(h *history) {
		h.pod(watch.Added, "a", "n", healthy)
		h.pod(watch.Added, "b", "n", healthy)
	}
	turns := func(h *history) { h.pod(watch.Modified, "a", "n", unhealthy) }
	wants := func(least intstr.IntOrString) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &least }
	}
	for name, tt := range map[string]struct {
		pods        func(h *history)
		least       intstr.IntOrString
		from, to    int32
		says, idles int
		wrong       string
	}{
		"as many as are healthy":             {pods: two, least: intstr.FromInt32(1), to: 1},
		"more than are healthy":              {pods: two, least: intstr.FromInt32(1), to: 2, wrong: "it allows 2 evictions, 2 pods are healthy, and 1 are wanted"},
		"it stays too high":                  {pods: two, least: intstr.FromInt32(1), from: 2, to: 2},
		"it falls, and is too high":          {pods: two, least: intstr.FromInt32(1), from: 3, to: 2},
		"one is unhealthy since long":        {pods: func(h *history) { two(h); turns(h); h.idle(5) }, least: intstr.FromInt32(1), to: 1, wrong: "it allows 1 evictions, 1 pods are healthy"},
		"one is unhealthy since just now":    {pods: func(h *history) { two(h); h.idle(5); turns(h) }, least: intstr.FromInt32(1), to: 1},
		"one is gone since long":             {pods: func(h *history) { two(h); h.pod(watch.Deleted, "a", "n", healthy); h.idle(5) }, least: intstr.FromInt32(1), to: 1, wrong: "it allows 1 evictions, 1 pods are healthy"},
		"one is gone since just now":         {pods: func(h *history) { two(h); h.idle(5); h.pod(watch.Deleted, "a", "n", healthy) }, least: intstr.FromInt32(1), to: 1},
		"one goes since long":                {pods: func(h *history) { two(h); h.pod(watch.Modified, "a", "n", healthy, deleting); h.idle(5) }, least: intstr.FromInt32(1), to: 1, wrong: "it allows 1 evictions, 1 pods are healthy"},
		"half of them, as the status has it": {pods: two, least: intstr.FromString("50%"), says: 1, to: 1},
		"half of them, more are not healthy": {pods: func(h *history) { two(h); turns(h); h.idle(5) }, least: intstr.FromString("50%"), says: 1, to: 1, wrong: "it allows 1 evictions, 1 pods are healthy, and 1 are wanted"},
	} {
		for _, by := range []string{account + DisruptionController, "admin"} {
			t.Run(name+", "+by, func(t *testing.T) {
				h := &history{}
				budget := func(event watch.EventType, allowed int32) {
					b := &policyv1.PodDisruptionBudget{ObjectMeta: metaNamed("budget"), Spec: policyv1.PodDisruptionBudgetSpec{
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
					wants(tt.least)(b)
					b.Status.DisruptionsAllowed, b.Status.DesiredHealthy = allowed, int32(tt.says)
					h.add(truth.PodDisruptionBudgets, event, b)
				}
				budget(watch.Added, tt.from)
				h.pod(watch.Added, "another", "n", readyIs(corev1.ConditionTrue), func(p *corev1.Pod) { p.Labels = nil })
				tt.pods(h)
				budget(watch.Modified, tt.to)
				h.request(by, "update", truth.PodDisruptionBudgets, "budget", subresource("status"))
				if by == "admin" {
					tt.wrong = ""
				}
				requireWrong(t, h, RuleBudgetStatus, tt.wrong)
			})
		}
	}
}

// A quota that comes to count fewer pods, or says for the first time how many, must count those that are there.
func TestQuotaStatus(t *testing.T) {
	scoped := func(q *corev1.ResourceQuota) {
		q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	}
	for name, tt := range map[string]struct {
		from, to string
		idle     uint64
		change   []func(*corev1.Pod)
		quota    func(*corev1.ResourceQuota)
		wrong    string
	}{
		"it falls to as many as there are": {from: "3", to: "1", idle: 5},
		"it falls to fewer":                {from: "3", to: "0", idle: 5, wrong: "it counts 0 pods, and there are 1"},
		"it begins with fewer":             {to: "0", idle: 5, wrong: "it counts 0 pods, and there are 1"},
		"it rises, to fewer":               {from: "-1", to: "0", idle: 5},
		"it falls, the pod came just now":  {from: "3", to: "0"},
		"it falls, the pod has ended":      {from: "3", to: "0", idle: 5, change: []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}},
		"it falls, the pod goes":           {from: "3", to: "0", idle: 5, change: []func(*corev1.Pod){deleting}},
		"it falls, and counts some":        {from: "3", to: "0", idle: 5, quota: scoped},
	} {
		for _, by := range []string{account + QuotaController, "admin"} {
			t.Run(name+", "+by, func(t *testing.T) {
				h := &history{}
				quota := func(event watch.EventType, used string) {
					q := &corev1.ResourceQuota{ObjectMeta: metaNamed("quota")}
					if used != "" {
						q.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(used)}
					}
					if tt.quota != nil {
						tt.quota(q)
					}
					h.add(truth.ResourceQuotas, event, q)
				}
				quota(watch.Added, tt.from)
				h.pod(watch.Added, "a", "n", tt.change...)
				h.idle(tt.idle)
				quota(watch.Modified, tt.to)
				h.request(by, "update", truth.ResourceQuotas, "quota", subresource("status"))
				if by == "admin" {
					tt.wrong = ""
				}
				requireWrong(t, h, RuleQuotaStatus, tt.wrong)
			})
		}
	}
}
