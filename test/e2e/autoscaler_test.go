// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/loadmetric"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	autoscaled = "autoscaled"
	// loadedPods run, of which only loadedReady are ready at first.
	loadedPods, loadedReady = 10, 2
	// targetLoad is the load that the pods are enough for.
	targetLoad = 100
	// ruleLowered is broken by an autoscaler that takes pods from a workload whose load is above the target.
	ruleLowered = "replicas lowered under load"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// Eight of ten pods become ready while pods are held, and then the load is half as much again as they are for. Every stock arm counts
// the two that its cache has ready, and lowers the replicas to three. When the load is low, they must be lowered.
var _ = describe(scenario{
	number: 47, title: "pods held: pods of an autoscaled workload become ready, then the load rises", label: ordinary,
	hurts: rig.U1, rules: []string{ruleLowered}, mutants: []without{{"proof-hpa", ruleLowered}}, gaps: []int{24}, idle: true,
	options: rig.Options{KCMArgs: []string{"--horizontal-pod-autoscaler-sync-period=1s"},
		Record: []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.ReplicaSetDeletes)
		metric := r.loadMetric(ctx)
		names := r.loaded(ctx)
		r.readiness(ctx, names, corev1.ConditionFalse)
		r.readiness(ctx, names[:loadedReady], corev1.ConditionTrue)
		r.told(ctx, truth.Pods)
		r.autoscale(ctx)
		r.eventually(ctx, "the autoscaler to know the load", func() (bool, error) {
			hpa, err := r.autoscaler(ctx)
			return err == nil && len(hpa.Status.CurrentMetrics) > 0 && hpa.Status.DesiredReplicas == loadedPods, err
		})

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		r.readiness(ctx, names, corev1.ConditionTrue)
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		read := metric.Set(targetLoad * 3 / 2)
		r.eventually(ctx, "the autoscaler to read the load twice", func() (bool, error) { return metric.Reads() >= read+2, nil })
		_ = rig.Wait(ctx, 3*time.Second, "the autoscaler to lower the replicas", func() (bool, error) {
			n, err := r.replicas(ctx)
			return n < loadedPods, err
		})
		n, err := r.replicas(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.figure("replicas under 150 % of the load", "%d of %d", n, loadedPods)
		if n < loadedPods {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleLowered, Object: autoscaled, Time: time.Now(), Detail: fmt.Sprintf("to %d of %d ready pods", n, loadedPods)})
		}
		r.proves(hold, loadedPods-loadedReady, proofAge+time.Second)
		r.putOff(ctx, "horizontalpodautoscaler", truth.Pods)
		hpa, err := r.autoscaler(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.ScalingLimited {
				r.figure("condition", "%s", condition.Reason)
			}
		}
		metric.Set(targetLoad)
		hold.Clear()
		r.told(ctx, truth.Pods)
		if n < loadedPods {
			return
		}
		metric.Set(targetLoad / 2)
		low := time.Now()
		r.eventually(ctx, "the autoscaler to lower the replicas", func() (bool, error) {
			n, err := r.replicas(ctx)
			return n < loadedPods, err
		})
		r.figure("lowered under half of the load, after", "%v", rounded(time.Since(low)))
	},
})

// loadMetric serves the load as an external metric.
func (r *run) loadMetric(ctx context.Context) *loadmetric.Server {
	ginkgo.GinkgoHelper()
	metric, err := loadmetric.Start(r.servingCert("load"), targetLoad)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(metric.Close)
	_, err = r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: loadmetric.Name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	objects, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gv := loadmetric.GroupVersion
	_, err = objects.Resource(apiServices).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServices.GroupVersion().String(), "kind": "APIService", "metadata": map[string]any{"name": gv.Version + "." + gv.Group},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": metav1.NamespaceDefault, "name": loadmetric.Name, "port": int64(metric.Port())},
		},
	}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return metric
}

// loaded makes a ReplicaSet whose pods run on no node, so that nobody but the test says whether they are ready.
func (r *run) loaded(ctx context.Context) (names []string) {
	ginkgo.GinkgoHelper()
	rs := workload.ReplicaSet(autoscaled, loadedPods)
	rs.Spec.Template.Spec.SchedulerName = noScheduler
	_, err := r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Create(ctx, rs, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the pods to be made", func() (bool, error) {
		all, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(rs.Spec.Selector)})
		if err != nil || len(all.Items) < loadedPods {
			return false, err
		}
		for _, pod := range all.Items {
			names = append(names, pod.Name)
		}
		return true, nil
	})
	return names
}

// readiness has pods run, and be ready or not.
func (r *run) readiness(ctx context.Context, names []string, ready corev1.ConditionStatus) {
	ginkgo.GinkgoHelper()
	for _, name := range names {
		_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, ready), metav1.PatchOptions{}, "status")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// autoscale makes an autoscaler that does not wait before it lowers replicas.
func (r *run) autoscale(ctx context.Context) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceDefault).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: autoscaled},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: autoscaled},
			MinReplicas:    new(int32(1)), MaxReplicas: 2 * loadedPods,
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0))}},
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: loadmetric.Name},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: resource.NewQuantity(targetLoad, resource.DecimalSI)},
			}}},
		},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

func (r *run) autoscaler(ctx context.Context) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	return r.Client.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceDefault).Get(ctx, autoscaled, metav1.GetOptions{})
}

// replicas is how many the ReplicaSet is to have.
func (r *run) replicas(ctx context.Context) (int, error) {
	rs, err := r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Get(ctx, autoscaled, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	return int(*rs.Spec.Replicas), nil
}
