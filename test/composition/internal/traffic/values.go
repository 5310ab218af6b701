// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	// fillAfter is when tenants make their first pods: their quotas count by then.
	fillAfter = 10 * time.Second
	// remakeAfter is how long after the deletion of pods those of their names are made: quotas have counted by then. In one moment
	// upstream's controller may count between the events, on either arm, and has no reason to count again.
	remakeAfter = 20 * time.Millisecond
	drainEvery  = 200 * time.Millisecond
	// plenty is how much a quota allows of what is not to be refused.
	plenty = 100
)

// startTenants makes the tenants of a schedule, and the budgets.
func (t *Traffic) startTenants(s schedule.Schedule) {
	for _, tenant := range s.Tenants {
		t.MakeNamespace(tenant.Name)
		t.tenants[tenant.Name] = tenant.Pods
		t.server.Create(model.Quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: tenant.Name}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{
				corev1.ResourcePods: quantity(tenant.Hard), model.CountOf(model.Pods): quantity(plenty), model.CountOf(model.Widgets): quantity(plenty),
			},
		}})
		t.After(fillAfter, func() { t.fill(tenant.Name, tenant.Pods) })
	}
	for _, b := range s.Budgets {
		namespace := Namespace
		for _, v := range s.Values() {
			if v.Kind == schedule.BudgetValue && v.Name == b.Over {
				namespace = v.Namespace
			}
		}
		spec := policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": b.Over}}}
		if b.MaxUnavailable > 0 {
			spec.MaxUnavailable = new(intstr.FromInt(b.MaxUnavailable))
		} else {
			spec.MinAvailable = new(intstr.FromInt(b.MinAvailable))
		}
		t.server.Create(model.Budgets, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.Over}, Spec: spec})
	}
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// podOf is the nth pod of a tenant's user.
func podOf(tenant string, n int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprint("pod-", n), Labels: map[string]string{"app": tenant}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, TerminationGracePeriodSeconds: new(int64(30))},
	}
}

// doForTenant does what a step of work on a tenant, a budget or a node's absence says. It reports whether the step is one.
func (t *Traffic) doForTenant(s schedule.Step) bool {
	switch s.Action {
	case schedule.Fill:
		t.fill(s.Target, s.N)
	case schedule.Keep:
		for i := s.N; i < t.tenants[s.Target]; i++ {
			t.server.Delete(model.Pods, s.Target, podOf(s.Target, i).Name, new(int64(0)))
		}
	case schedule.Empty:
		for i := range s.N {
			t.server.Delete(model.Pods, s.Target, podOf(s.Target, i).Name, nil)
		}
		t.server.Delete(model.Widgets, s.Target, counted, nil)
	case schedule.EndPods:
		for i := range s.N {
			model.Change(t.server, model.Pods, s.Target, podOf(s.Target, i).Name, func(p *corev1.Pod) {
				if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					p.Status.Phase, p.Status.Conditions = corev1.PodSucceeded, nil
				}
			})
		}
	case schedule.Remake:
		for i := range s.N {
			t.server.Delete(model.Pods, s.Target, podOf(s.Target, i).Name, new(int64(0)))
		}
		t.After(remakeAfter, func() { t.fill(s.Target, s.N) })
	case schedule.SetHard:
		model.Change(t.server, model.Quotas, s.Target, s.Target, func(q *corev1.ResourceQuota) { q.Spec.Hard[corev1.ResourcePods] = quantity(s.N) })
	case schedule.SetMin:
		model.Change(t.server, model.Budgets, s.Target, s.Target, func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable = new(intstr.FromInt(s.N))
		})
	case schedule.Drain:
		t.drain(s.Target, s.N, time.Now().Add(s.For))
	case schedule.NodeGone:
		n := t.nodes[s.N%len(t.nodes)]
		t.setDead(n, true)
		t.server.Delete(model.Nodes, "", n.name, nil)
		t.After(s.For, func() {
			t.setDead(n, false)
			if n.downs.Load() == 0 {
				t.server.TryCreate(model.Nodes, newNode(n.name))
			}
		})
	case schedule.OutOfService:
		n := t.nodes[s.N%len(t.nodes)]
		t.setDead(n, true)
		t.After(s.Delay, func() { t.outOfService(n.name, true) })
		t.After(s.For, func() {
			t.setDead(n, false)
			t.outOfService(n.name, false)
		})
	default:
		return false
	}
	return true
}

// setDead stops a kubelet, and starts it once nothing stops it any more.
func (t *Traffic) setDead(n *node, dead bool) {
	more := int64(-1)
	if dead {
		more = 1
	}
	n.dead.Store(n.downs.Add(more) > 0)
}

// counted is the custom resource of a tenant's user.
const counted = "counted"

// fill makes those of a tenant's first pods that are not there, and the custom resource.
func (t *Traffic) fill(tenant string, n int) {
	for i := range n {
		t.server.TryCreate(model.Pods, podOf(tenant, i))
	}
	t.server.TryCreate(model.Widgets, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: counted}})
}

func (t *Traffic) outOfService(name string, on bool) {
	t.setTaint(name, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}, on)
}

// drain tries to evict pods until so many have been.
func (t *Traffic) drain(over string, left int, end time.Time) {
	if left <= 0 || time.Now().After(end) {
		return
	}
	var pods []*corev1.Pod
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.Pods) {
			if p := o.(*corev1.Pod); p.Labels["app"] == over && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				pods = append(pods, p)
			}
		}
	})
	if len(pods) > 0 && t.server.Evict(pods[left%len(pods)]) {
		left--
	}
	t.After(drainEvery, func() { t.drain(over, left, end) })
}
