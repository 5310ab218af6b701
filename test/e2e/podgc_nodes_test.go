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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	serviceNode = "repaired"
	servicePod  = "stateful"
	// ruleForced is broken by a deletion without grace of a pod that a serving node is about to stop.
	ruleForced = "pod force-deleted from a node that serves"
)

// A node was out of service, and is back while node events are held; then a pod of it is deleted with long grace. Every
// stock arm deletes the pod at once, while it runs. When the node is out of service again the pod must go.
var _ = describe(scenario{
	number: 32, title: "node events held: node repaired, and a pod of it deleted with long grace", label: ordinary,
	incidents: []string{"141887"},
	hurts:     rig.U1, rules: []string{ruleForced}, allows: []string{oracle.RuleLiveTainted}, mutants: []without{{"nodes-podgc", ruleForced}}, idle: true,
	options: rig.Options{KCMArgs: []string{"--node-monitor-grace-period=10m"}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, func(_ *truth.Recorder, d oracle.Deletion) string {
			if d.By == oracle.PodGarbageCollector {
				return "the scenario looks at that"
			}
			return ""
		})
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		// kwok does not know the node, so it is as it is said to be here.
		_, err := r.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: serviceNode}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.serve(ctx, false)
		r.runOnServiceNode(ctx)
		there := func() bool {
			_, there := r.Truth.Find(truth.Pods, metav1.NamespaceDefault, servicePod, truth.Latest)
			return there
		}
		r.told(ctx, truth.Nodes)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{})
		r.serve(ctx, true)
		r.passes(ctx, "what was proven before to be too old", hold.Stats().Since, proofAge+time.Second)
		gomega.Expect(pods.Delete(ctx, servicePod, *metav1.NewDeleteOptions(600))).To(gomega.Succeed())
		r.passes(ctx, "a pass", time.Now(), podGCPeriod+5*time.Second)
		r.proves(hold, 1, podGCPeriod)
		r.putOff(ctx, "podgc", truth.Nodes)
		if !there() {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleForced, Object: servicePod, Time: time.Now()})
		}
		hold.Clear()
		r.told(ctx, truth.Nodes)
		if r.Arm != rig.P {
			return
		}
		r.serve(ctx, false)
		r.figure("deleted after", "%v", rounded(r.converges(ctx, "the pod of a node out of service", podGCPeriod+stepLimit, func() error {
			if there() {
				return fmt.Errorf("pod %s is still there", servicePod)
			}
			return nil
		})))
	},
})

// runOnServiceNode runs a pod with these volumes on the node. It tolerates everything.
func (r *run) runOnServiceNode(ctx context.Context, volumes ...corev1.Volume) {
	ginkgo.GinkgoHelper()
	pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := workload.Orphan(servicePod, servicePod, serviceNode)
	pod.Spec.Tolerations, pod.Spec.Volumes = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, volumes
	_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = pods.Patch(ctx, servicePod, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// serve puts the node in service or out of it.
func (r *run) serve(ctx context.Context, ready bool) {
	ginkgo.GinkgoHelper()
	taints := fmt.Sprintf(`[{"key":%q,"value":"nodeshutdown","effect":"NoExecute"}]`, corev1.TaintNodeOutOfService)
	if ready {
		taints = "[]"
	}
	r.saysReady(ctx, serviceNode, ready)
	_, err := r.Client.CoreV1().Nodes().Patch(ctx, serviceNode, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}
