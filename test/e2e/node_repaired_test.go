// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// repairedOne and repairedOther turn not ready together. One of them is tainted, the other waits for its turn, taintEvery later.
	repairedOne, repairedOther = "repaired-a", "repaired-b"
	taintEvery                 = 20 * time.Second
)

// Two nodes are not ready. While the second waits for its turn to be tainted, both are repaired, and node events are held; then a pod that is
// ready is seen on the first. Every stock arm taints a node that is ready, and takes a ready pod out of its Services.
var _ = describe(scenario{
	number: 54, title: "node events held: nodes repaired before one is tainted and a ready pod is seen on another", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleLiveTainted, oracle.RuleLivePod}, idle: true,
	mutants: []without{{"node-taint", oracle.RuleLiveTainted}, {"node-pods", oracle.RuleLivePod}},
	options: rig.Options{
		// Where all nodes of a zone are not ready, none is tainted.
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 3}},
		KCMArgs: []string{"--node-monitor-grace-period=10m", fmt.Sprintf("--node-eviction-rate=%v", 1/taintEvery.Seconds())},
	},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.deaths.Nodes = sets.New(repairedOne, repairedOther)
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		// kwok does not know the nodes, so they are as they are said to be here.
		for _, name := range []string{repairedOne, repairedOther} {
			_, err := r.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			r.saysReady(ctx, name, true)
		}
		pod := workload.Orphan(servicePod, servicePod, "")
		pod.Spec.SchedulerName, pod.Spec.Tolerations = noScheduler, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = pods.Patch(ctx, servicePod, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.told(ctx, truth.Nodes)
		r.told(ctx, truth.Pods)
		r.saysReady(ctx, repairedOne, false)
		r.saysReady(ctx, repairedOther, false)
		r.eventually(ctx, "one of the nodes to be tainted", func() (bool, error) { return len(r.evicting()) > 0, nil })
		first := r.evicting()[0]
		at := oracle.Tainted(r.Truth, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)[first][0]
		r.told(ctx, truth.Nodes)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{})
		r.saysReady(ctx, repairedOne, true)
		r.saysReady(ctx, repairedOther, true)
		repaired := time.Now()
		if left := taintEvery - time.Since(at); left < 2*proofAge {
			r.unproven = append(r.unproven, fmt.Sprintf("the nodes were repaired %v before the second taint is due", left))
		}
		r.passes(ctx, "what was proven before to be too old", repaired, 2*proofAge)
		// Late events look like that: the first that is heard of a pod is that it runs, and is ready.
		gomega.Expect(pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: repairedOne}}, metav1.CreateOptions{})).To(gomega.Succeed())
		r.passes(ctx, "the turn of the second taint", at, taintEvery+passPeriod)
		r.proves(hold, 2, 2*proofAge)
		r.figure("tainted while ready", "%d", len(r.evicting())-1)
		hold.Clear()
		r.told(ctx, truth.Nodes)
		r.figure("L after", "%v", rounded(r.converges(ctx, "the nodes have no taint", stepLimit, func() error {
			if names := r.evicting(); len(names) > 0 {
				return fmt.Errorf("nodes %v are tainted", names)
			}
			return nil
		})))
	},
})

// saysReady has a node say that it is ready, or is not.
func (r *run) saysReady(ctx context.Context, name string, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	_, err := r.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"E2E","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`, status, now, now), metav1.PatchOptions{}, "status")
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
}

// evicting are the nodes with the NoExecute taint for not being ready.
func (r *run) evicting() (names []string) {
	for _, e := range r.Truth.At(truth.Nodes, truth.Latest) {
		if slices.ContainsFunc(e.Object.(*corev1.Node).Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoExecute
		}) {
			names = append(names, e.Name)
		}
	}
	return names
}
