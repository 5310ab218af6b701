// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/e2e/framework"
	imageutils "k8s.io/kubernetes/test/utils/image"
	admissionapi "k8s.io/pod-security-admission/api"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
)

const (
	rolloutLimit = 5 * time.Minute
	poll         = time.Second
)

var _ = framework.SIGDescribe("apps")("DaemonSet", gates.StaleControllerConsistency(), func() {
	f := framework.NewDefaultFramework("daemonset")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	ginkgo.It("creates each pod once, rolls out, and waits for nothing", func(ctx context.Context) {
		sets := f.ClientSet.AppsV1().DaemonSets(f.Namespace.Name)
		created := countPods(ctx, f)

		labels := map[string]string{"app": "fresh"}
		_, err := sets.Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "fresh"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: new(int64),
						Containers:                    []corev1.Container{{Name: "pause", Image: imageutils.GetPauseImageName()}},
					},
				},
			},
		}, metav1.CreateOptions{})
		framework.ExpectNoError(err)
		desired := rolledOut(ctx, f, "fresh")
		gomega.Expect(created.Load()).To(gomega.BeEquivalentTo(desired), "no pod was created twice")

		_, err = sets.Patch(ctx, "fresh", types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`), metav1.PatchOptions{})
		framework.ExpectNoError(err)
		gomega.Expect(rolledOut(ctx, f, "fresh")).To(gomega.Equal(desired))
		gomega.Expect(created.Load()).To(gomega.BeEquivalentTo(2*desired), "each pod was replaced once")

		revisions, err := f.ClientSet.AppsV1().ControllerRevisions(f.Namespace.Name).List(ctx, metav1.ListOptions{})
		framework.ExpectNoError(err)
		gomega.Expect(revisions.Items).To(gomega.HaveLen(2))
		waits, err := f.ClientSet.CoreV1().Events(f.Namespace.Name).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("reason", "StaleCache").String(),
		})
		framework.ExpectNoError(err)
		gomega.Expect(waits.Items).To(gomega.BeEmpty(), "nothing waited for a cache without a fault")
	})
})

// countPods counts the pods that are ever created in the framework's namespace.
func countPods(ctx context.Context, f *framework.Framework) *atomic.Int64 {
	ginkgo.GinkgoHelper()
	count := &atomic.Int64{}
	factory := informers.NewSharedInformerFactoryWithOptions(f.ClientSet, 0, informers.WithNamespace(f.Namespace.Name))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { count.Add(1) },
	})
	framework.ExpectNoError(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ginkgo.DeferCleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return count
}

// rolledOut waits until the DaemonSet's newest revision is available wherever it should be, and returns
// on how many nodes that is.
func rolledOut(ctx context.Context, f *framework.Framework, name string) int32 {
	ginkgo.GinkgoHelper()
	var status appsv1.DaemonSetStatus
	gomega.Eventually(ctx, func(ctx context.Context) (bool, error) {
		set, err := f.ClientSet.AppsV1().DaemonSets(f.Namespace.Name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = set.Status
		return status.ObservedGeneration == set.Generation && status.DesiredNumberScheduled > 0 &&
			status.UpdatedNumberScheduled == status.DesiredNumberScheduled && status.NumberAvailable == status.DesiredNumberScheduled, nil
	}).WithTimeout(rolloutLimit).WithPolling(poll).Should(gomega.BeTrue(), "DaemonSet %s is rolled out; last status: %+v", name, &status)
	return status.DesiredNumberScheduled
}
