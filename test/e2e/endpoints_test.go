// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	servedPods    = 3
	servedService = "served"
	// servedWithin is how long an arm has to serve pods that are ready. It waits for 1 s, 2 s, 4 s and so on before it tries again.
	servedWithin = 10 * time.Second
	// ruleServed is broken by a pod that is ready and that the Service does not have.
	ruleServed = "ready pod is no endpoint of its Service"
)

// Nodes join while node events are held, and all pods of a Service run on these. Every stock arm leaves them out, for as long as the hold
// lasts and the backoff of the Service after that.
var _ = describe(scenario{
	number: 43, title: "node events held: all pods of a Service on nodes that have joined", label: ordinary,
	hurts: rig.U1, rules: []string{ruleServed}, mutants: []without{{"live-nodes", ruleServed}}, gaps: []int{22}, idle: true,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		_, err := r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: servedService},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": servedService}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.told(ctx, truth.Nodes)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{})
		nodes, err := r.Cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: servedPods})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		for i, node := range nodes {
			pod := workload.Orphan(nameOf(servedService, i), servedService, node)
			pod.Labels["group"] = servedService
			_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.runs(ctx, servedService, servedPods)
		ready := time.Now()
		_ = rig.Wait(ctx, servedWithin, "endpoints", func() (bool, error) {
			n, err := r.readyEndpoints(ctx)
			return n == servedPods, err
		})
		n, err := r.readyEndpoints(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.figure("endpoints of ready pods", "%d of %d after %v", n, servedPods, rounded(time.Since(ready)))
		if n < servedPods {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleServed, Object: servedService, Time: time.Now(), Detail: fmt.Sprintf("%d of %d", n, servedPods)})
		}
		r.proves(hold, servedPods, 0)
		if r.Arm == rig.P {
			r.figure("live reads of nodes", "%.0f", series(ctx, r, "stale_controller_live_reads_total", `controller="endpointslice"`, `resource="nodes"`))
		}
		hold.Clear()
		r.told(ctx, truth.Nodes)
		released := time.Now()
		if err := rig.Wait(ctx, 2*stepLimit, "endpoints after the hold", func() (bool, error) {
			n, err := r.readyEndpoints(ctx)
			return n == servedPods, err
		}); err != nil {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleServed, Object: servedService, Time: time.Now(), Detail: "after the hold"})
		}
		r.figure("all there after the hold, after", "%v", rounded(time.Since(released)))
	},
})

// readyEndpoints counts those of the Service.
func (r *run) readyEndpoints(ctx context.Context) (n int, err error) {
	all, err := r.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + servedService})
	if err != nil {
		return 0, err
	}
	for _, slice := range all.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}
