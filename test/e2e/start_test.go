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
	discoveryv1 "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
	"github.com/fresh-kcm/fresh-kcm/test/lag"
)

const (
	// ruleEndpoint is broken if an EndpointSlice loses pods that are ready.
	ruleEndpoint = "endpoint of a ready pod dropped"
	// ruleReserved is broken if a claim is taken from a pod that runs.
	ruleReserved = "reservation of a running pod dropped"
)

const webPods = 5

// A KCM comes up on an apiserver whose watch cache of pods stands still. Since then pods that had ended were made again under
// their names, and a Service has got its pods. Every stock arm takes the new pods for ended ones and deletes them, and
// takes all endpoints out of the Service, which its pods could serve. On P neither controller starts before the pods are proven as
// new as the start of leadership. Without that podgc still proves the pods before it deletes any; the endpoints go.
//
//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
var _ = describe(scenario{
	number: 44, title: "KCM starts on a lagging apiserver: podgc and EndpointSlices", label: long,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified, ruleEndpoint}, mutants: []without{{"start-informers", ruleEndpoint}}, gaps: []int{17}, idle: true,
	options: rig.Options{KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.PodGCDeletes(podGCThreshold))
		proxy, lagging := r.restartOnLagging(ctx, func() {
			r.runGroup(ctx, "remade", remadePods)
			r.endPods(ctx, "remade", remadePods)
		}, remadePods, func() {
			r.remake(ctx, "remade", 0, remadePods)
			r.serveWeb(ctx)
		})
		began, fewest := time.Now(), webPods
		_ = rig.Wait(ctx, lagFor, "harm", func() (bool, error) {
			n, err := r.endpoints(ctx)
			fewest = min(fewest, n)
			return fewest == 0 && r.evicted("remade") >= 2*remadePods-podGCThreshold, err
		})
		if fewest < webPods {
			r.violate(oracle.Violation{Oracle: "E", Rule: ruleEndpoint, Object: "web", Time: time.Now(), Detail: fmt.Sprintf("%d of %d are left", fewest, webPods)})
		}
		r.figure("V etcd watch of pods held", "%d pieces, %.1fs after leading", lagging.Held(), time.Since(began).Seconds())
		r.asked(proxy, false)
		r.figure("running pods left", "%d of %d", r.running("remade"), remadePods)
		r.figure("endpoints, least", "%d of %d", fewest, webPods)
		r.waitedToStart(ctx, truth.Pods, 0)
		lagging.Release()
		gomega.Expect(r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, nameOf("web", 0), *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		r.figure("L the endpoints of the pods left, after", "%v", rounded(r.converges(ctx, "the Service has its pods", time.Minute, func() error {
			switch n, err := r.endpoints(ctx); {
			case err != nil:
				return err
			case n != webPods-1:
				return fmt.Errorf("%d endpoints", n)
			}
			return nil
		})))
		r.waitedToStart(ctx, truth.Pods, 1)
	},
})

// A KCM comes up likewise. Since then two of ten pods have turned unready, which leaves as many as a budget wants, and a pod was made again under its name
// and has got a claim. Every stock arm allows two evictions, and takes the claim from the pod.
var _ = describe(scenario{
	number: 44, title: "KCM starts on a lagging apiserver: a disruption budget and a resource claim", label: long,
	hurts: rig.U1, rules: []string{ruleEvicted, ruleReserved}, gaps: []int{17}, idle: true,
	options: rig.Options{KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.PodGCDeletes(podGCThreshold))
		claims := r.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
		claim := func() *resourceapi.ResourceClaim {
			c, err := claims.Get(ctx, usingPod, metav1.GetOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			return c
		}
		var uid types.UID
		uses := func() {
			pod := workload.Claiming(usingPod, usingPod)
			pod.Spec.SchedulerName = noScheduler
			pod, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			uid = pod.UID
			gomega.Expect(r.allocate(ctx, claim(), pod.Name, uid)).To(gomega.Succeed())
			gomega.Expect(r.setPhase(ctx, pod.Name, corev1.PodRunning)).To(gomega.Succeed())
		}
		proxy, lagging := r.restartOnLagging(ctx, func() {
			r.makeBudget(ctx, budgetPods-budgetDown)
			_, err := claims.Create(ctx, workload.DeviceClaim(usingPod, onlyDevice, time.Minute), metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			uses()
			r.runGroup(ctx, "last", 1)
			r.endPods(ctx, "last", 1)
		}, 1, func() {
			r.turn(ctx, budgetDown, corev1.ConditionFalse)
			gomega.Expect(r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, usingPod, *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
			r.eventually(ctx, "the claim to be free", func() (bool, error) {
				c := claim()
				return c.Status.Allocation == nil && len(c.Finalizers) == 0, nil
			})
			uses()
			r.eventually(ctx, "no eviction to be allowed", func() (bool, error) { return r.allows(ctx, 0) == nil, nil })
		})
		began := time.Now()
		_ = rig.Wait(ctx, lagFor, "harm", func() (bool, error) { return r.allows(ctx, budgetDown) == nil && !reservedFor(claim(), uid), nil })
		evicted := r.evict(ctx, budgetDown, budgetPods)
		r.evictedTooMany(evicted)
		kept := reservedFor(claim(), uid)
		if !kept {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleReserved, Object: usingPod, Time: time.Now()})
		}
		r.figure("V etcd watch of pods held", "%d pieces, %.1fs after leading", lagging.Held(), time.Since(began).Seconds())
		r.asked(proxy, false)
		r.figure("evicted; still reserved", "%d; %t", evicted, kept)
		r.waitedToStart(ctx, truth.Pods, 0)
		lagging.Release()
		if kept {
			gomega.Expect(r.setPhase(ctx, usingPod, corev1.PodSucceeded)).To(gomega.Succeed())
			r.figure("L claim released, the pod ended, after", "%v", rounded(r.converges(ctx, "the claim is free", time.Minute, func() error {
				if c := claim(); c.Status.Allocation != nil {
					return fmt.Errorf("%+v", c.Status)
				}
				return nil
			})))
		}
		r.converges(ctx, "no eviction is allowed", time.Minute, func() error { return r.allows(ctx, 0) })
		r.waitedToStart(ctx, truth.Pods, 1)
	},
})

// restartOnLagging kills the KCM and starts it again on an apiserver that has pods only as they were before changes. Of those that made has made, the ones that
// have ended must be the last.
func (r *run) restartOnLagging(ctx context.Context, made func(), ended int, changes func()) (*faultproxy.Proxy, *lag.Proxy) {
	ginkgo.GinkgoHelper()
	server, proxy, lagging := r.behindLagging(ctx)

	r.cordon(ctx) // What is made again is on no node: kwok finishes deletions by name, too.
	made()
	r.cached(ctx, server, ended)
	lagging.Hold()
	changes()
	gomega.Expect(r.KCM.Kill()).To(gomega.Succeed())

	r.startsAgain(ctx, proxy, false, podGCArgs...)
	if lagging.Held() == 0 {
		r.unproven = append(r.unproven, "nothing was held between etcd and the lagging apiserver")
	}
	return proxy, lagging
}

// waitedToStart says whether controllers of P have been let go, once, on a cache that was proven.
func (r *run) waitedToStart(ctx context.Context, resource schema.GroupResource, proven float64) {
	ginkgo.GinkgoHelper()
	if r.Arm != rig.P {
		return
	}
	if n := series(ctx, r, "stale_controller_start_proofs_total", fmt.Sprintf("resource=%q", resource.Resource), `outcome="Proven"`); n != proven {
		r.unwaited = append(r.unwaited, fmt.Sprintf("%v proofs of %s at the start, want %v", n, resource, proven))
	}
}

// cached waits until the watch cache of an apiserver has so many pods that have ended.
func (r *run) cached(ctx context.Context, server *controlplane.APIServer, ended int) {
	ginkgo.GinkgoHelper()
	client, err := kubernetes.NewForConfig(server.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the lagging apiserver to have the pods ended", func() (bool, error) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		n := 0
		for i := range pods.Items {
			if oracle.Ended(&pods.Items[i]) {
				n++
			}
		}
		return n == ended, nil
	})
}

// cordon keeps pods from the nodes that do not name one.
func (r *run) cordon(ctx context.Context) {
	ginkgo.GinkgoHelper()
	nodes, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, node := range nodes.Items {
		_, err := r.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// serveWeb makes pods and a Service that has them.
func (r *run) serveWeb(ctx context.Context) {
	ginkgo.GinkgoHelper()
	nodes, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(nodes.Items).NotTo(gomega.BeEmpty())
	for i := range webPods {
		_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, workload.Orphan(nameOf("web", i), "web", nodes.Items[0].Name), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	_, err = r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the Service to have its pods", func() (bool, error) {
		n, err := r.endpoints(ctx)
		return n == webPods, err
	})
}

// endpoints counts those of the Service that are ready.
func (r *run) endpoints(ctx context.Context) (int, error) {
	slices, err := r.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}
