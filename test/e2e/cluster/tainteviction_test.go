// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/e2e/framework"
	imageutils "k8s.io/kubernetes/test/utils/image"
	admissionapi "k8s.io/pod-security-admission/api"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
)

const (
	taintKey = "fresh-kcm.io/e2e"
	// toleration is how long the tolerant pod tolerates the taint.
	toleration = 10 * time.Second
)

// The node is an object only, so that no node of the cluster is disturbed; its pods never run.
var _ = framework.SIGDescribe("node")("Taint eviction", gates.StaleControllerConsistency(), func() {
	f := framework.NewDefaultFramework("taint")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	ginkgo.It("evicts in time what does not tolerate a taint, and spares the rest", func(ctx context.Context) {
		nodes := f.ClientSet.CoreV1().Nodes()
		node, err := nodes.Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "fresh-kcm-e2e-"},
			Spec:       corev1.NodeSpec{Unschedulable: true},
		}, metav1.CreateOptions{})
		framework.ExpectNoError(err)
		ginkgo.DeferCleanup(func(ctx context.Context) error {
			return nodes.Delete(ctx, node.Name, metav1.DeleteOptions{})
		})
		forever := corev1.Toleration{Operator: corev1.TolerationOpExists}
		seconds := int64(toleration.Seconds())
		for name, tolerations := range map[string][]corev1.Toleration{
			"forever": {forever},
			"never":   {},
			"a-while": {{Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}},
		} {
			_, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PodSpec{
					NodeName: node.Name, Tolerations: tolerations, TerminationGracePeriodSeconds: new(int64),
					Containers: []corev1.Container{{Name: "pause", Image: imageutils.GetPauseImageName()}},
				},
			}, metav1.CreateOptions{})
			framework.ExpectNoError(err)
		}

		tainted := time.Now()
		_, err = nodes.Patch(ctx, node.Name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"`+taintKey+`","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
		framework.ExpectNoError(err)
		gone(ctx, f, "never")
		gomega.Expect(time.Since(tainted)).To(gomega.BeNumerically("<", toleration), "at once")
		gone(ctx, f, "a-while")
		gomega.Expect(time.Since(tainted)).To(gomega.BeNumerically(">=", toleration), "not before its toleration ran out")

		pod, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).Get(ctx, "forever", metav1.GetOptions{})
		framework.ExpectNoError(err)
		gomega.Expect(pod.DeletionTimestamp).To(gomega.BeNil())
	})
})

// gone waits until a pod is deleted; without a kubelet to confirm it, being marked so is all there is.
func gone(ctx context.Context, f *framework.Framework, name string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(ctx context.Context) (bool, error) {
		pod, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && pod.DeletionTimestamp != nil, err
	}).WithTimeout(2*toleration).WithPolling(100*time.Millisecond).Should(gomega.BeTrue(), "pod %s is evicted", name)
}
