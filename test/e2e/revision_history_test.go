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

const historied = "historied"

// A DaemonSet is to keep more old revisions, which its controller does not learn, and then the last pod of an old one goes. Every
// stock arm deletes that revision.
var _ = describe(scenario{
	number: 30, title: "daemonsets held: more revisions are to be kept, and the last pod of an old one deleted", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleRevisionDeleted}, mutants: []without{{"history-daemonset", oracle.RuleRevisionDeleted}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		ds := workload.DaemonSet(historied, workload.OnDelete)
		ds.Spec.RevisionHistoryLimit = new(int32(0))
		set := create(ctx, r, ds)
		r.converges(ctx, "without fault", stepLimit, r.daemonSetDone(set, 1))
		setImage(ctx, r, historied, workload.Image+":second")
		r.eventually(ctx, "two revisions", func() (bool, error) { return len(r.Truth.At(truth.ControllerRevisions, truth.Latest)) == 2, nil })
		sets := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault)
		r.eventually(ctx, "the status of the new template", func() (bool, error) {
			ds, err := sets.Get(ctx, historied, metav1.GetOptions{})
			return err == nil && ds.Status.ObservedGeneration == ds.Generation && ds.Status.NumberAvailable == 1, err
		})
		r.told(ctx, truth.DaemonSets)

		hold := r.inject(faultproxy.Target{Resource: truth.DaemonSets}, faultproxy.Hold{})
		patchSpec(ctx, r, historied, `{"spec":{"revisionHistoryLimit":5}}`)
		r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
		// At once, as its deletion in two steps has the controller write a status between them.
		gomega.Expect(r.Client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})).To(gomega.Succeed())
		r.eventually(ctx, "a pod of the new template", func() (bool, error) {
			return oracle.DigestOf(r.Truth, set).PodsCreated >= 2, nil
		})
		r.passes(ctx, "the controller to act", time.Now(), proofAge)
		r.proves(hold, 1, 2*proofAge)
		r.putOff(ctx, "daemonset", truth.DaemonSets)
		hold.Clear()
		r.told(ctx, truth.DaemonSets)
		r.figure("L after", "%v", rounded(r.converges(ctx, historied, stepLimit, r.daemonSetDone(set, 1))))
		r.figure("revisions left", "%d", len(r.Truth.At(truth.ControllerRevisions, truth.Latest)))
	},
})

// An old ReplicaSet is scaled up again while its controller does not learn that, and then none are to be kept. Every stock arm deletes it, and
// would delete its pods with it.
var _ = describe(scenario{
	number: 37, title: "replicasets held: an old one scaled up, then no old ones are to be kept", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleReplicaSetDeleted}, mutants: []without{{"deployment-cleanup", oracle.RuleReplicaSetDeleted}}, idle: true,
	options: rig.Options{
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}},
		Record:  []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.Deployments},
	},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.ReplicaSetDeletes)
		deployments, sets := r.Client.AppsV1().Deployments(metav1.NamespaceDefault), r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault)
		done := func() error {
			d, err := deployments.Get(ctx, historied, metav1.GetOptions{})
			if err == nil && !deploymentDone(d) {
				err = fmt.Errorf("%+v", d.Status)
			}
			return err
		}
		_, err := deployments.Create(ctx, workload.Deployment(historied, 1), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.converges(ctx, "without fault", stepLimit, done)
		old := r.replicaSets(1)[0]
		_, err = deployments.Patch(ctx, historied, types.StrategicMergePatchType, imagePatch("second"), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the old ReplicaSet to have no pods", func() (bool, error) {
			set, err := sets.Get(ctx, old, metav1.GetOptions{})
			return err == nil && done() == nil && *set.Spec.Replicas == 0 && set.Status.Replicas == 0 && set.Status.ObservedGeneration == set.Generation, err
		})
		r.told(ctx, truth.ReplicaSets)

		hold := r.inject(faultproxy.Target{Resource: truth.ReplicaSets}, faultproxy.Hold{})
		_, err = sets.Patch(ctx, old, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
		_, err = deployments.Patch(ctx, historied, types.MergePatchType, []byte(`{"spec":{"revisionHistoryLimit":0}}`), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_ = rig.Wait(ctx, stepLimit, "the old ReplicaSet to be deleted, or that to be put off", func() (bool, error) {
			return len(r.replicaSets(0)) == 1 || r.Arm == rig.P && series(ctx, r, "stale_controller_unproven_actions_total", `controller="deployment"`, `resource="replicasets"`) > 0, nil
		})
		r.passes(ctx, "the controller to look again", time.Now(), proofAge)
		r.proves(hold, 1, 2*proofAge)
		r.putOff(ctx, "deployment", truth.ReplicaSets)
		hold.Clear()
		r.told(ctx, truth.ReplicaSets)
		r.figure("L after", "%v", rounded(r.converges(ctx, "the Deployment has one ReplicaSet", stepLimit, func() error {
			if err := done(); err != nil {
				return err
			}
			if sets := r.replicaSets(0); len(sets) != 1 {
				return fmt.Errorf("ReplicaSets %v", sets)
			}
			return nil
		})))
	},
})

// replicaSets are the names of all there are, which must be so many unless that is 0.
func (r *run) replicaSets(want int) (names []string) {
	ginkgo.GinkgoHelper()
	for _, e := range r.Truth.At(truth.ReplicaSets, truth.Latest) {
		if e.Object.(*appsv1.ReplicaSet).DeletionTimestamp == nil {
			names = append(names, e.Name)
		}
	}
	if want > 0 {
		gomega.Expect(names).To(gomega.HaveLen(want))
	}
	return names
}
