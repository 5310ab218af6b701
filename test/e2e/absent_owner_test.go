// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	broughtBack     = "brought-back"
	broughtBackPods = 3
	// ruleBroughtBack is broken by the deletion of what a restore has brought back together with its owner.
	ruleBroughtBack = "dependents deleted whose owner is back"
)

// A Deployment is deleted, and then etcd is restored from a snapshot that has it, its ReplicaSet and its pods. The garbage collector
// remembers for good that the Deployment is absent. Where the pods are relisted before the ReplicaSet, it reads the ReplicaSet from the
// server, and every stock arm deletes it for the owner that it believes to be absent, and the pods with it. Revisions are bumped, so that
// nothing shows that etcd was restored but the lists.
var _ = describe(scenario{
	number: 23, title: "etcd restored from a snapshot, a Deployment deleted since, revisions bumped, its ReplicaSet relisted last", label: ordinary,
	hurts: rig.U1, rules: []string{ruleBroughtBack}, mutants: []without{{"absence-gc", ruleBroughtBack}}, gaps: []int{14}, idle: true,
	options: restoreOptions(),
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		deployments, sets, pods := r.Client.AppsV1().Deployments(metav1.NamespaceDefault), r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault), r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		selected := metav1.ListOptions{LabelSelector: "app=" + broughtBack}
		podUIDs := func() (map[types.UID]bool, error) {
			list, err := pods.List(ctx, selected)
			if err != nil {
				return nil, err
			}
			out := map[types.UID]bool{}
			for i := range list.Items {
				if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
					out[pod.UID] = true
				}
			}
			return out, nil
		}
		done := func() error {
			d, err := deployments.Get(ctx, broughtBack, metav1.GetOptions{})
			if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != broughtBackPods || d.Status.Replicas != broughtBackPods) {
				err = fmt.Errorf("status %+v", d.Status)
			}
			return err
		}
		_, err := deployments.Create(ctx, workload.Deployment(broughtBack, broughtBackPods), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.converges(ctx, "before the snapshot", patience, done)
		list, err := sets.List(ctx, selected)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(list.Items).To(gomega.HaveLen(1))
		set := list.Items[0].UID
		before, err := podUIDs()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		snapshot := filepath.Join(r.Cluster.Dir(), "data", "snapshot.db")
		gomega.Expect(r.Cluster.SnapshotEtcd(ctx, snapshot)).To(gomega.Succeed())

		gomega.Expect(deployments.Delete(ctx, broughtBack, metav1.DeleteOptions{})).To(gomega.Succeed())
		r.eventually(ctx, "all that the Deployment owned to be deleted", func() (bool, error) {
			left, err := podUIDs()
			if err != nil || len(left) > 0 {
				return false, err
			}
			list, err := sets.List(ctx, selected)
			return err == nil && len(list.Items) == 0, err
		})
		r.told(ctx, truth.Pods)
		r.told(ctx, truth.ReplicaSets)
		left := liveRV(ctx, r)

		informers := func(q faultproxy.Request) bool { return q.Verb == "watch" || q.Verb == "list" }
		holds := []*faultproxy.Fault{
			r.inject(faultproxy.Target{Resource: truth.Deployments, Match: informers}, faultproxy.Hold{Lists: true}),
			r.inject(faultproxy.Target{Resource: truth.ReplicaSets, Match: informers}, faultproxy.Hold{Lists: true}),
		}
		gomega.Expect(r.Cluster.RestoreEtcd(ctx, snapshot, bumped...)).To(gomega.Succeed())
		r.restartOthers(ctx)
		r.filledAnew(ctx, truth.Pods, left)
		r.passes(ctx, "the controller to act", time.Now(), orphansSettle)
		r.figure("ReplicaSet while held", "%s", r.setIs(ctx, set))
		for _, hold := range holds {
			held := hold.Stats().Held.Frames + hold.Stats().Requests
			r.figure("V held of "+hold.Stats().Resource.Resource, "%d", held)
			if held == 0 {
				r.unproven = append(r.unproven, "nothing of "+hold.Stats().Resource.Resource+" was held")
			}
			hold.Clear()
		}
		r.figure("L after", "%.1fs", r.converges(ctx, "after the restore", restoreBound, done).Seconds())
		r.passes(ctx, "the controller to go wrong later", time.Now(), orphansSettle)
		after, err := podUIDs()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		kept := 0
		for uid := range before {
			if after[uid] {
				kept++
			}
		}
		is := r.setIs(ctx, set)
		r.figure("ReplicaSet", "%s", is)
		r.figure("pods kept", "%d of %d", kept, broughtBackPods)
		if is != "there" || kept < broughtBackPods {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleBroughtBack, Object: broughtBack, Time: time.Now(),
				Detail: fmt.Sprintf("the ReplicaSet is %s, and %d of %d pods are left", is, kept, broughtBackPods)})
		}
	},
})

// setIs says what has become of the ReplicaSet with this UID.
func (r *run) setIs(ctx context.Context, uid types.UID) string {
	ginkgo.GinkgoHelper()
	list, err := r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range list.Items {
		switch set := &list.Items[i]; {
		case set.UID != uid:
		case set.DeletionTimestamp != nil:
			return "being deleted"
		default:
			return "there"
		}
	}
	return "gone"
}
