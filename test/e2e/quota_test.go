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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	quotaName = "pods"
	quotaHard = 10
	// ruleQuota is broken by more objects than a quota has room for.
	ruleQuota = "more pods than the quota allows"
)

// A quota has room for ten pods, which are made while pod events are held; then the quota is touched. Every stock arm counts
// none and publishes that, and ten more get in. When pods go, there must be room for others again.
var _ = describe(scenario{
	number: 33, title: "pod events held: pods up to the quota made, and the quota touched", label: ordinary,
	hurts: rig.U1, rules: []string{ruleQuota}, mutants: []without{{"falls-quota", ruleQuota}}, gaps: []int{15}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		quotas := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		quota := func() *corev1.ResourceQuota {
			q, err := quotas.Get(ctx, quotaName, metav1.GetOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			return q
		}
		used := func() int64 { n := quota().Status.Used[corev1.ResourcePods]; return n.Value() }
		_, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quotaName},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(fmt.Sprint(quotaHard))}}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		began := time.Now()
		r.eventually(ctx, "the quota to be counted", func() (bool, error) { _, counted := quota().Status.Used[corev1.ResourcePods]; return counted, nil })
		r.figure("counted at first after", "%v", rounded(time.Since(began)))
		gomega.Expect(r.fill(ctx, "warm", 1)).To(gomega.Equal(1)) // The watch has brought something.
		r.told(ctx, truth.Pods)
		gomega.Expect(pods.Delete(ctx, nameOf("warm", 0), *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		r.told(ctx, truth.Pods)
		r.converges(ctx, "nothing used", patience, func() error { return isUsed(used(), 0) })

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		gomega.Expect(r.fill(ctx, "first", quotaHard)).To(gomega.Equal(quotaHard))
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		_, err = quotas.Patch(ctx, quotaName, types.MergePatchType, []byte(`{"spec":{"hard":{"configmaps":"100"}}}`), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the controller to act", func() (bool, error) {
			_, touched := quota().Status.Hard[corev1.ResourceConfigMaps]
			return touched, nil
		})
		r.figure("used, counted", "%d", used())
		r.fill(ctx, "second", quotaHard)
		r.proves(hold, quotaHard, proofAge)
		r.putOff(ctx, "resourcequota", truth.Pods)
		there := len(r.Truth.At(truth.Pods, truth.Latest))
		r.figure("pods, of 10", "%d", there)
		if there > quotaHard {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleQuota, Object: quotaName, Time: time.Now(), Detail: fmt.Sprintf("%d of %d", there, quotaHard)})
		}
		hold.Clear()
		r.told(ctx, truth.Pods)
		r.converges(ctx, "all are counted", stepLimit, func() error { return isUsed(used(), int64(there)) })

		gomega.Expect(pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})).To(gomega.Succeed())
		r.figure("room again after", "%v", rounded(r.converges(ctx, "there is room again", stepLimit, func() error { return isUsed(used(), 0) })))
		gomega.Expect(r.fill(ctx, "third", 1)).To(gomega.Equal(1))
	},
})

func isUsed(used, want int64) error {
	if used != want {
		return fmt.Errorf("%d are used; want %d", used, want)
	}
	return nil
}

// fill makes pods that run nowhere, and returns how many the server has admitted, once the truth has them.
func (r *run) fill(ctx context.Context, group string, count int) int {
	ginkgo.GinkgoHelper()
	admitted := 0
	for i := range count {
		pod := workload.Orphan(nameOf(group, i), group, "")
		_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			admitted++
		}
	}
	r.eventually(ctx, "the truth to have the pods", func() (bool, error) {
		n := 0
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			if e.Object.(*corev1.Pod).Labels["app"] == group {
				n++
			}
		}
		return n == admitted, nil
	})
	return admitted
}
