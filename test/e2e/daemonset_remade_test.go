// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const remadeNodes = 3

// A DaemonSet that was changed twice is deleted and made again under its name while DaemonSets are held, and one of its pods turns unready. Where the server refuses the status of the
// one that is gone, every stock arm gets the DaemonSet of that name and writes the status to it: it says that a third generation was observed of what has one.
var _ = describe(scenario{
	number: 62, title: "DaemonSets held: one made again under its name, and a pod turns unready", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleStatusBack}, mutants: []without{{"successor", oracle.RuleStatusBack}}, gaps: []int{26}, idle: true,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: remadeNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "remade"
		sets := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault)
		first := create(ctx, r, workload.DaemonSet(name))
		for _, image := range []string{workload.Image + ":b", workload.Image + ":c"} {
			r.eventually(ctx, "the DaemonSet to be complete", done(r.daemonSetDone(first, remadeNodes)))
			setImage(ctx, r, name, image)
		}
		r.eventually(ctx, "the DaemonSet to be complete", done(r.daemonSetDone(first, remadeNodes)))
		r.told(ctx, truth.DaemonSets)

		hold := r.inject(faultproxy.Target{Resource: truth.DaemonSets}, faultproxy.Hold{})
		gomega.Expect(sets.Delete(ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
		second := create(ctx, r, workload.DaemonSet(name))
		r.turnUnready(ctx, first)
		r.eventually(ctx, "the status of the first to be refused", func() (bool, error) {
			events, err := r.Audit()
			for _, e := range events {
				if e.ObjectRef.Name == name && e.ObjectRef.Subresource == "status" && e.ResponseStatus.Code == http.StatusConflict && e.ServiceAccount() == oracle.DaemonSetController {
					return true, nil
				}
			}
			return false, err
		})
		var observed int64
		_ = rig.Wait(ctx, 5*time.Second, "it to be written to the second", func() (bool, error) {
			e, found := r.Truth.Find(truth.DaemonSets, metav1.NamespaceDefault, name, truth.Latest)
			if found && e.UID == second {
				observed = e.Object.(*appsv1.DaemonSet).Status.ObservedGeneration
			}
			return observed > 0, nil
		})
		r.figure("generation observed, of one", "%d", observed)
		r.proves(hold, 2, 0)
		hold.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, 2*stepLimit, r.daemonSetDone(second, remadeNodes))))
	},
})

// turnUnready has one of a DaemonSet's pods turn unready, as its kubelet does.
func (r *run) turnUnready(ctx context.Context, set types.UID) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "a pod to turn unready", func() (bool, error) {
		pods := r.podsOf(set)
		if len(pods) == 0 {
			return false, nil
		}
		err := r.setReady(ctx, pods[0], corev1.ConditionFalse)
		return err == nil, ignoreNotFound(err)
	})
}

// podsOf are the pods of a DaemonSet that are not being deleted.
func (r *run) podsOf(set types.UID) (pods []*corev1.Pod) {
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if pod := e.Object.(*corev1.Pod); oracle.DaemonSetOf(pod) == set && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// setReady says whether a pod is ready, as its kubelet does.
func (r *run) setReady(ctx context.Context, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, ready), metav1.PatchOptions{}, "status")
	return err
}
