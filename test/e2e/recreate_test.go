// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	recreated   = "recreated"
	recreatedBy = 3 // pods
	// wrongAfter is for how long P is watched once it has put the new pods off.
	wrongAfter = 5 * time.Second
)

// Pod events are held from before the pods of a Deployment that recreates are made, so that the KCM knows of none of them, and then its
// template changes. Every stock arm sees no old pods and starts the new ones beside them.
var _ = describe(scenario{
	number: 37, title: "pod events held: a Recreate Deployment made, and its template changed", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleRevisions}, mutants: []without{{"pods-deployment", oracle.RuleRevisions}}, gaps: []int{16}, idle: true,
	options: rig.Options{
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}},
		Record:  []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.Deployments},
	},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.ReplicaSetDeletes)
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		d := workload.Deployment(recreated, recreatedBy)
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		_, err := r.Client.AppsV1().Deployments(d.Namespace).Create(ctx, d, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the pods to be made", func() (bool, error) { return r.recreatedPods(workload.Image) == recreatedBy, nil })
		_, err = r.Client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.StrategicMergePatchType, imagePatch("next"), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())

		r.eventually(ctx, "the new pods to be made, or put off", func() (bool, error) {
			if r.recreatedPods(nextImage) == recreatedBy {
				return true, nil
			}
			return r.Arm == rig.P && series(ctx, r, "stale_controller_unproven_actions_total", `controller="deployment"`, `resource="pods"`) > 0, nil
		})
		r.passes(ctx, "the controller to go wrong later", time.Now(), wrongAfter)
		r.proves(hold, recreatedBy, wrongAfter)
		r.putOff(ctx, "deployment", truth.Pods)
		r.figure("old and new pods", "%d, %d", r.recreatedPods(workload.Image), r.recreatedPods(nextImage))

		hold.Clear()
		r.figure("rolled out after the release", "%v", rounded(r.converges(ctx, "the Deployment has its new pods alone", stepLimit, r.recreateDone)))
		gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
		r.violate(oracle.Revisions(r.Truth)...)
	},
})

// recreatedPods is how many pods of the Deployment there are with this image.
func (r *run) recreatedPods(image string) int {
	n := 0
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if pod := e.Object.(*corev1.Pod); pod.Labels["app"] == recreated && pod.Spec.Containers[0].Image == image {
			n++
		}
	}
	return n
}

func (r *run) recreateDone() error {
	ginkgo.GinkgoHelper()
	for _, e := range r.Truth.At(truth.Deployments, truth.Latest) {
		if d := e.Object.(*appsv1.Deployment); d.Name == recreated && deploymentDone(d) && r.recreatedPods(workload.Image) == 0 && r.recreatedPods(nextImage) == recreatedBy {
			return nil
		}
	}
	return fmt.Errorf("there are %d old pods and %d new ones", r.recreatedPods(workload.Image), r.recreatedPods(nextImage))
}
