// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"path/filepath"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// A pod that uses the only device is deleted, and then etcd is restored from a snapshot that has it. The controller of claims remembers for good
// that the pod is gone. Every stock arm takes its claim from it, and another pod gets the device, too. Revisions are bumped, so that nothing
// shows that etcd was restored but the lists. When the pod ends, the other must get the device.
var _ = describe(scenario{
	number: 23, title: "etcd restored from a snapshot, a pod that uses a device deleted since, revisions bumped", label: ordinary,
	hurts: rig.U1, rules: []string{ruleDevice}, mutants: []without{{"proof-resourceclaim", ruleDevice}}, gaps: []int{19}, idle: true,
	options: restoreOptions(),
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.oneDevice(ctx)
		r.claiming(ctx, usingPod)
		r.runs(ctx, usingPod, 1)
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		pod, err := pods.Get(ctx, usingPod, metav1.GetOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		snapshot := filepath.Join(r.Cluster.Dir(), "data", "snapshot.db")
		gomega.Expect(r.Cluster.SnapshotEtcd(ctx, snapshot)).To(gomega.Succeed())

		gomega.Expect(pods.Delete(ctx, usingPod, *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		r.converges(ctx, "the claim is released", stepLimit, func() error { return r.allocated(ctx, false) })
		r.told(ctx, truth.Pods)
		left := liveRV(ctx, r)

		gomega.Expect(r.Cluster.RestoreEtcd(ctx, snapshot, bumped...)).To(gomega.Succeed())
		r.restartOthers(ctx)
		for _, resource := range []schema.GroupResource{truth.Pods, truth.ResourceClaims} {
			r.filledAnew(ctx, resource, left)
		}
		restored, err := pods.Get(ctx, usingPod, metav1.GetOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		if restored.UID != pod.UID || restored.Status.Phase != corev1.PodRunning {
			r.unproven = append(r.unproven, "the pod did not come back as it was")
		}
		r.claiming(ctx, awaitingPod)
		r.passes(ctx, "the controller and the scheduler to act", time.Now(), proofAge+8*time.Second)
		r.deviceIsKept(ctx, pod.UID)
		r.deviceIsGivenOn(ctx)
	},
})
