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
	// heldEvictions is longer than the 2 min after which an eviction counts as failed.
	heldEvictions = 150 * time.Second
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
		r.makeBudget(ctx, budgetPods)

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		r.turn(ctx, budgetDown, corev1.ConditionFalse)
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		_, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Patch(ctx, budgetGroup, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, budgetPods-budgetDown), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the controller to act", func() (bool, error) { b := r.budget(ctx); return b.Status.ObservedGeneration == b.Generation, nil })
		evicted := r.evict(ctx, budgetDown, budgetDown+1)
		r.passes(ctx, "the controller to go wrong later", time.Now(), 5*time.Second)
		evicted += r.evict(ctx, budgetDown+1, budgetPods)
		r.proves(hold, budgetDown, proofAge+5*time.Second)
		r.putOff(ctx, "disruption", truth.Pods)
		r.figure("evicted while held", "%d", evicted)
		r.evictedTooMany(evicted)
		hold.Clear()
		r.told(ctx, truth.Pods)
		r.converges(ctx, "no eviction is allowed any more", stepLimit, func() error { return r.allows(ctx, 0) })

		r.turn(ctx, budgetDown, corev1.ConditionTrue)
		r.figure("allowed again after", "%v", rounded(r.converges(ctx, "evictions are allowed again", stepLimit, func() error {
			return r.allows(ctx, int32(max(0, budgetDown-evicted)))
		})))
		if r.Arm == rig.P {
			r.figure("evicted later", "%d of %d", r.evict(ctx, 0, budgetPods), budgetDown)
		}
	},
})

// Two of ten pods may be evicted, and are, while pod events are held. The controller hears of none of that, and takes an eviction that came to nothing
// within 2 min for one that failed: every stock arm allows two more, and would again every 2 min. On P the monitor
// ends the watch twice, and the informer lists the pods within a minute, so that nothing has to wait for a proof.
var _ = describe(scenario{
	number: 34, title: "pod events held for 150 s: all evictions made that a budget allows", label: long,
	hurts: rig.U1, rules: []string{ruleEvicted}, gaps: []int{15}, idle: true,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.makeBudget(ctx, budgetPods-budgetDown)

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		began := time.Now()
		gomega.Expect(r.evict(ctx, 0, budgetDown)).To(gomega.Equal(budgetDown))
		evicted := 0
		for time.Since(began) < heldEvictions {
			evicted += r.evict(ctx, budgetDown, budgetPods)
			r.passes(ctx, "the controller to go wrong later", time.Now(), 5*time.Second)
		}
		r.proves(hold, budgetDown, heldEvictions)
		r.figure("evicted while held, besides", "%d", evicted)
		r.evictedTooMany(evicted)
		hold.Clear()
		r.told(ctx, truth.Pods)
		r.converges(ctx, "no eviction is allowed any more", stepLimit, func() error { return r.allows(ctx, 0) })
		r.figure("evicted later", "%d", r.evict(ctx, budgetDown, budgetPods))
	},
})

// makeBudget makes pods that are ready, and a budget over them, and waits until the controller allows all that it may.
func (r *run) makeBudget(ctx context.Context, minAvailable int32) {
	ginkgo.GinkgoHelper()
	r.runGroup(ctx, budgetGroup, budgetPods)
	r.turn(ctx, budgetPods, corev1.ConditionTrue)
	_, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: budgetGroup}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": budgetGroup}}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.converges(ctx, "the budget to allow what it may", patience, func() error { return r.allows(ctx, budgetPods-minAvailable) })
	r.told(ctx, truth.Pods)
}

func (r *run) budget(ctx context.Context) *policyv1.PodDisruptionBudget {
	ginkgo.GinkgoHelper()
	b, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Get(ctx, budgetGroup, metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return b
}

// allows returns an error unless the budget, as it is now, allows so many evictions.
func (r *run) allows(ctx context.Context, want int32) error {
	ginkgo.GinkgoHelper()
	if b := r.budget(ctx); b.Status.ObservedGeneration != b.Generation || b.Status.DisruptionsAllowed != want {
		return fmt.Errorf("generation %d: %+v; want %d allowed", b.Generation, b.Status, want)
	}
	return nil
}

// evictedTooMany judges how many pods were evicted beyond those of which none must be missing.
func (r *run) evictedTooMany(evicted int) {
	if evicted > 0 {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleEvicted, Object: budgetGroup, Time: time.Now(),
			Detail: fmt.Sprintf("%d of %d healthy", budgetPods-budgetDown-evicted, budgetPods-budgetDown)})
	}
}

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
