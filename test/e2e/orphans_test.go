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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	orphansOwner  = "left-behind"
	orphanPods    = 6
	orphanPodsOld = 2
	orphanMaps    = 20
	// ruleOrphans is broken by the deletion of a dependent whose owner was deleted with propagationPolicy Orphan.
	ruleOrphans = "dependents deleted that were to be orphaned"
	// orphansSettle is for how long dependents are watched after their owner has gone and the watch goes on.
	orphansSettle = 5 * time.Second
)

// A ReplicaSet is scaled up while pod events are held, and then deleted with propagationPolicy Orphan. Every stock arm takes the
// finalizer off at once, and deletes the pods that it learns of later.
var _ = describe(scenario{
	number: 35, title: "pod events held: ReplicaSet scaled up, then deleted and its pods to be orphaned", label: ordinary,
	incidents: []string{"88097", "114603"},
	hurts:     rig.U1, rules: []string{ruleOrphans}, mutants: []without{{"orphans-gc", ruleOrphans}}, gaps: []int{14}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		sets := r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault)
		set, err := sets.Create(ctx, workload.ReplicaSet(orphansOwner, orphanPodsOld), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		made := func(want int) {
			r.eventually(ctx, fmt.Sprintf("%d pods", want), func() (bool, error) { return len(r.orphanPods(set.UID)) == want, nil })
		}
		made(orphanPodsOld)
		r.told(ctx, truth.Pods)

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		_, err = sets.Patch(ctx, orphansOwner, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, orphanPods), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		made(orphanPods)
		pods := r.orphanPods(set.UID)
		r.orphan(ctx, hold, orphanPods-orphanPodsOld, func() error { return sets.Delete(ctx, orphansOwner, orphaning) }, func() error {
			_, err := sets.Get(ctx, orphansOwner, metav1.GetOptions{})
			return err
		})
		r.told(ctx, truth.Pods)
		left := 0
		for uid := range pods {
			e, there := r.Truth.At(truth.Pods, truth.Latest)[uid]
			if there && e.Object.(*corev1.Pod).DeletionTimestamp == nil && len(e.Object.(*corev1.Pod).OwnerReferences) == 0 {
				left++
			}
		}
		r.orphaned(left, orphanPods)
	},
})

// A Secret is deleted with propagationPolicy Orphan when it has become the owner of ConfigMaps while their events are held.
// No controller makes such dependents. Every stock arm deletes them all.
var _ = describe(scenario{
	number: 35, title: "events of ConfigMaps held: a Secret deleted and its ConfigMaps to be orphaned", label: ordinary,
	incidents: []string{"88097", "114603"},
	hurts:     rig.U1, rules: []string{ruleOrphans}, mutants: []without{{"orphans-gc", ruleOrphans}}, gaps: []int{14}, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		secrets, maps := r.Client.CoreV1().Secrets(metav1.NamespaceDefault), r.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		secret, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: orphansOwner}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		hold := r.inject(faultproxy.Target{Resource: configMaps}, faultproxy.Hold{})
		for i := range orphanMaps {
			_, err := maps.Create(ctx, dependentMap(secret, nameOf(orphansOwner, i)), metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.orphan(ctx, hold, orphanMaps, func() error { return secrets.Delete(ctx, orphansOwner, orphaning) }, func() error {
			_, err := secrets.Get(ctx, orphansOwner, metav1.GetOptions{})
			return err
		})
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "app=" + orphansOwner})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		left := 0
		for i := range list.Items {
			if len(list.Items[i].OwnerReferences) == 0 {
				left++
			}
		}
		r.orphaned(left, orphanMaps)
	},
})

var (
	orphaning  = metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
	configMaps = corev1.Resource("configmaps")
)

// dependentMap returns a ConfigMap that a Secret owns.
func dependentMap(owner *corev1.Secret, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": owner.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID}}}}
}

// orphan deletes an owner, some of whose dependents are held back, and ends the hold when the controller has had time to go
// wrong. It returns when the owner is gone, and the controller has had time to go wrong again.
func (r *run) orphan(ctx context.Context, hold *faultproxy.Fault, frames int, remove, get func() error) {
	ginkgo.GinkgoHelper()
	r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
	deleted := time.Now()
	gomega.Expect(remove()).To(gomega.Succeed())
	r.passes(ctx, "the controller to act", deleted, orphansSettle)
	r.figure("owner while held", "%v", map[bool]string{true: "gone", false: "there"}[apierrors.IsNotFound(get())])
	r.proves(hold, frames, orphansSettle)
	r.putOff(ctx, "garbagecollector", hold.Stats().Resource)
	hold.Clear()
	r.figure("gone after the end of the hold", "%v", rounded(r.converges(ctx, "the owner is gone", stepLimit, func() error {
		if err := get(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})))
	r.passes(ctx, "the controller to go wrong later", time.Now(), orphansSettle)
}

// orphaned judges how many of the dependents are left, without an owner.
func (r *run) orphaned(left, of int) {
	r.figure("orphans left", "%d of %d", left, of)
	if left < of {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleOrphans, Object: orphansOwner, Time: time.Now(), Detail: fmt.Sprintf("%d of %d are left", left, of)})
	}
}

// orphanPods are the pods that the owner has ever had.
func (r *run) orphanPods(owner types.UID) map[types.UID]struct{} {
	out := map[types.UID]struct{}{}
	for _, e := range r.Truth.Events(truth.Pods) {
		for _, ref := range e.Object.(*corev1.Pod).OwnerReferences {
			if ref.UID == owner {
				out[e.UID] = struct{}{}
			}
		}
	}
	return out
}
