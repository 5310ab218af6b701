// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	budgetGroup = "guarded"
	budgetPods  = 10
	budgetDown  = 2
	// ruleEvicted is broken by an eviction that leaves fewer healthy pods than a budget wants.
	ruleEvicted = "fewer pods healthy than minAvailable"
)

// Two of ten pods turn unready while pod events are held, and then two fewer must be available. Every stock arm allows two
// evictions. When the two are ready again, evictions must go on.
var _ = describe(scenario{
	number: 34, title: "pod events held: pods turn unready, then minAvailable is lowered", label: ordinary,
	incidents: []string{"82149", "105326"},
	hurts:     rig.U1, rules: []string{ruleEvicted}, mutants: []without{{"rises-disruption", ruleEvicted}}, gaps: []int{15}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		budgets := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
		budget := func() *policyv1.PodDisruptionBudget {
			b, err := budgets.Get(ctx, budgetGroup, metav1.GetOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			return b
		}
		allowed := func(want int32) error {
			if b := budget(); b.Status.ObservedGeneration != b.Generation || b.Status.DisruptionsAllowed != want {
				return fmt.Errorf("generation %d: %+v; want %d allowed", b.Generation, b.Status, want)
			}
			return nil
		}
		r.runGroup(ctx, budgetGroup, budgetPods)
		r.turn(ctx, budgetPods, corev1.ConditionTrue)
		_, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: budgetGroup}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(budgetPods)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": budgetGroup}}}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.converges(ctx, "no eviction is allowed", patience, func() error { return allowed(0) })
		r.told(ctx, truth.Pods)

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		r.turn(ctx, budgetDown, corev1.ConditionFalse)
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		_, err = budgets.Patch(ctx, budgetGroup, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, budgetPods-budgetDown), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the controller to act", func() (bool, error) { b := budget(); return b.Status.ObservedGeneration == b.Generation, nil })
		evicted := r.evict(ctx, budgetDown, budgetDown+1)
		r.passes(ctx, "the controller to go wrong later", time.Now(), 5*time.Second)
		evicted += r.evict(ctx, budgetDown+1, budgetPods)
		r.proves(hold, budgetDown, proofAge+5*time.Second)
		r.putOff(ctx, "disruption", truth.Pods)
		r.figure("evicted while held", "%d", evicted)
		if evicted > 0 {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleEvicted, Object: budgetGroup, Time: time.Now(),
				Detail: fmt.Sprintf("%d of %d healthy", budgetPods-budgetDown-evicted, budgetPods-budgetDown)})
		}
		hold.Clear()
		r.told(ctx, truth.Pods)
		r.converges(ctx, "no eviction is allowed any more", stepLimit, func() error { return allowed(0) })

		r.turn(ctx, budgetDown, corev1.ConditionTrue)
		r.figure("allowed again after", "%v", rounded(r.converges(ctx, "evictions are allowed again", stepLimit, func() error {
			return allowed(int32(max(0, budgetDown-evicted)))
		})))
		if r.Arm == rig.P {
			r.figure("evicted later", "%d of %d", r.evict(ctx, 0, budgetPods), budgetDown)
		}
	},
})

// turn makes the first pods of the group ready or unready, as kubelets do.
func (r *run) turn(ctx context.Context, count int, ready corev1.ConditionStatus) {
	ginkgo.GinkgoHelper()
	for i := range count {
		_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, nameOf(budgetGroup, i), types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, ready), metav1.PatchOptions{}, "status")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// evict asks for the eviction of some pods of the group, and returns how many are let go.
func (r *run) evict(ctx context.Context, from, to int) int {
	ginkgo.GinkgoHelper()
	let := 0
	for i := from; i < to; i++ {
		err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: nameOf(budgetGroup, i), Namespace: metav1.NamespaceDefault}})
		switch {
		case err == nil:
			let++
		case !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err):
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
	return let
}
