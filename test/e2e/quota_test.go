// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		used := func() int64 { n := r.quota(ctx).Status.Used[corev1.ResourcePods]; return n.Value() }
		began := r.makeQuota(ctx, corev1.ResourcePods, quotaHard)
		r.figure("counted at first after", "%v", rounded(time.Since(began)))
		gomega.Expect(r.fill(ctx, "warm", 1)).To(gomega.Equal(1)) // The watch has brought something.
		r.told(ctx, truth.Pods)
		gomega.Expect(pods.Delete(ctx, nameOf("warm", 0), *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		r.told(ctx, truth.Pods)
		r.converges(ctx, "nothing used", patience, func() error { return isUsed(used(), 0) })

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		gomega.Expect(r.fill(ctx, "first", quotaHard)).To(gomega.Equal(quotaHard))
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		r.touchQuota(ctx)
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

// A device class is given the name of an extended resource while events of device classes are held. A quota of that resource has
// room for two devices, and two claims are made; then the quota is touched. Every stock arm knows of no claim that counts,
// publishes that nothing is used, and two more get in.
var _ = describe(scenario{
	number: 33, title: "deviceclasses held: claims up to the quota of an extended resource made, and the quota touched", label: ordinary,
	hurts: rig.U1, rules: []string{ruleQuotaDevices}, mutants: []without{{"classes-quota", ruleQuotaDevices}}, gaps: []int{15}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		used := func() int64 { n := r.quota(ctx).Status.Used[quotaDevices]; return n.Value() }
		class, err := r.Client.ResourceV1().DeviceClasses().Create(ctx, workload.DeviceClass(), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.informed(ctx, deviceClasses, class.ResourceVersion)
		r.makeQuota(ctx, quotaDevices, quotaClaims)
		r.passes(ctx, "a first value to be counted again", time.Now(), proofAge)

		hold := r.inject(faultproxy.Target{Resource: deviceClasses}, faultproxy.Hold{})
		_, err = r.Client.ResourceV1().DeviceClasses().Patch(ctx, class.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"extendedResourceName":%q}}`, strings.TrimPrefix(string(quotaDevices), corev1.DefaultResourceRequestsPrefix)), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		// The apiserver, too, learns of the class by a watch: it charges a claim from then on.
		charged := 0
		r.eventually(ctx, "claims to be charged", func() (bool, error) {
			r.claim(ctx, "first", charged)
			charged++
			return used() > 0, nil
		})
		first := charged
		for used() < quotaClaims {
			gomega.Expect(r.claim(ctx, "first", first)).To(gomega.BeTrue())
			first++
		}
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		r.touchQuota(ctx)
		r.figure("used, counted", "%d", used())
		more := 0
		for i := range quotaClaims {
			if r.claim(ctx, "second", i) {
				more++
			}
		}
		r.proves(hold, 1, proofAge)
		r.putOff(ctx, "resourcequota", deviceClasses)
		r.figure("claims beyond the quota", "%d", more)
		if more > 0 {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleQuotaDevices, Object: quotaName, Time: time.Now(), Detail: fmt.Sprintf("%d more than %d", more, quotaClaims)})
		}
		hold.Clear()
		r.converges(ctx, "all are counted", stepLimit, func() error { return isUsed(used(), int64(first+more)) })
	},
})

const (
	quotaDevices = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + "e2e.fresh-kcm.io/device")
	quotaClaims  = 2
	// ruleQuotaDevices is broken by more claims than a quota of devices has room for.
	ruleQuotaDevices = "more devices claimed than the quota allows"
)

var deviceClasses = resourceapi.Resource("deviceclasses")

// makeQuota makes the quota, waits until it is counted, and returns when it was made.
func (r *run) makeQuota(ctx context.Context, of corev1.ResourceName, hard int) (made time.Time) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{of: resource.MustParse(fmt.Sprint(hard))}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	made = time.Now()
	r.eventually(ctx, "the quota to be counted", func() (bool, error) { _, counted := r.quota(ctx).Status.Used[of]; return counted, nil })
	return made
}

func (r *run) quota(ctx context.Context) *corev1.ResourceQuota {
	ginkgo.GinkgoHelper()
	q, err := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Get(ctx, quotaName, metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return q
}

// touchQuota has the quota limit something else, too, and waits until the controller has published that.
func (r *run) touchQuota(ctx context.Context) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Patch(ctx, quotaName, types.MergePatchType, []byte(`{"spec":{"hard":{"configmaps":"100"}}}`), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the controller to act", func() (bool, error) {
		_, touched := r.quota(ctx).Status.Hard[corev1.ResourceConfigMaps]
		return touched, nil
	})
}

// claim makes a claim of one device that nobody uses, and says whether the server has admitted it.
func (r *run) claim(ctx context.Context, group string, i int) bool {
	ginkgo.GinkgoHelper()
	claim := workload.DeviceClaim(nameOf(group, i), group, time.Minute)
	_, err := r.Client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false
	}
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return true
}

// informed waits until the KCM's watches of a resource have been handed this version.
func (r *run) informed(ctx context.Context, resource schema.GroupResource, rv string) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, fmt.Sprintf("the KCM to be told of %s at %s", resource, rv), func() (bool, error) { return r.Told(resource, rv) })
}

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
