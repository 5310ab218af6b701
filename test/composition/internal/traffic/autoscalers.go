// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// metricWindow is the time over which what a pod uses is measured.
const metricWindow = 15 * time.Second

// scaling is what autoscalers are told of.
type scaling struct {
	schedule schedule.Schedule
	began    time.Time
	// asked, unless nil, is told when the load of an autoscaler has changed, or is asked for.
	asked func(truth model.Truth, a schedule.Autoscaler)
}

// startAutoscalers makes the autoscalers and their workloads.
func (t *Traffic) startAutoscalers(s schedule.Schedule) {
	t.scaling = scaling{schedule: s, began: time.Now()}
	for _, a := range s.Autoscalers {
		r, object := t.register(a.Owner())
		asks := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(schedule.TargetLoad, resource.DecimalSI)}}
		switch x := object.(type) {
		case *appsv1.Deployment:
			x.Spec.Template.Spec.Containers[0].Resources = asks
		case *appsv1.ReplicaSet:
			x.Spec.Template.Spec.Containers[0].Resources = asks
		}
		t.server.Create(r, object)
		t.server.Create(model.Autoscalers, newAutoscaler(a))
	}
}

func newAutoscaler(a schedule.Autoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	metric := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: a.Name}}}
	per := resource.NewQuantity(schedule.TargetLoad, resource.DecimalSI)
	switch a.Metric {
	case schedule.ByCPU:
		metric = autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(100))}}}
	case schedule.ByValue:
		metric.External.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: per}
	case schedule.ByAverage:
		metric.External.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: per}
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: a.Name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: a.Kind, Name: a.Name},
		MinReplicas:    new(int32(a.Least)), MaxReplicas: int32(a.Most), Metrics: []autoscalingv2.MetricSpec{metric},
	}}
	if a.Window >= 0 { // With the API's defaults.
		most := new(autoscalingv2.MaxChangePolicySelect)
		percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
		hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0)), SelectPolicy: most,
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, percent}},
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(a.Window.Seconds())), SelectPolicy: most, Policies: []autoscalingv2.HPAScalingPolicy{percent}},
		}
	}
	return hpa
}

// lateness is how long a pod runs before it is ready. It is called under the server's lock.
func (t *Traffic) lateness(pod *corev1.Pod) time.Duration {
	for _, a := range t.scaling.schedule.Autoscalers {
		if pod.Labels["app"] == a.Name {
			return a.Late
		}
	}
	return 0
}

// Figures are what is measured of a workload with this load: what each pod uses, and the external metric. Pods that are ready share the load.
func Figures(truth model.Truth, a schedule.Autoscaler, load int) (pods metrics.PodMetricsInfo, external int64) {
	var running, ready []*corev1.Pod
	for _, o := range truth.List(model.Pods) {
		p := o.(*corev1.Pod)
		if p.Labels["app"] != a.Name || p.Status.Phase != corev1.PodRunning {
			continue
		}
		running = append(running, p)
		if isReady(p, corev1.ConditionTrue) && p.DeletionTimestamp == nil {
			ready = append(ready, p)
		}
	}
	share := int64(load / max(1, len(ready)))
	pods = metrics.PodMetricsInfo{}
	for _, p := range running {
		pods[p.Name] = metrics.PodMetric{Timestamp: time.Now(), Window: metricWindow}
	}
	for _, p := range ready {
		pods[p.Name] = metrics.PodMetric{Timestamp: time.Now(), Window: metricWindow, Value: share}
	}
	if a.Metric == schedule.ByAverage {
		share = int64(load)
	}
	return pods, share * 1000 // The metric is in thousandths.
}

// Measured is what the controller of autoscalers reads, and asked is told when it does, and when that changes. It is nil without autoscalers.
func (t *Traffic) Measured(asked func(truth model.Truth, a schedule.Autoscaler)) metrics.MetricsClient {
	if len(t.scaling.schedule.Autoscalers) == 0 {
		return nil
	}
	t.scaling.asked = asked
	return measured{t: t}
}

type measured struct {
	metrics.MetricsClient
	t *Traffic
}

func (m measured) figures(of func(schedule.Autoscaler) bool) (pods metrics.PodMetricsInfo, external int64) {
	s := m.t.scaling
	m.t.server.Look(func(truth model.Truth) {
		for _, a := range s.schedule.Autoscalers {
			if of(a) {
				s.asked(truth, a)
				pods, external = Figures(truth, a, s.schedule.LoadAt(a, time.Since(s.began)))
			}
		}
	})
	return pods, external
}

// GetResourceMetric implements metrics.MetricsClient.
func (m measured) GetResourceMetric(_ context.Context, _ corev1.ResourceName, _ string, selector labels.Selector, _ string) (metrics.PodMetricsInfo, time.Time, error) {
	pods, _ := m.figures(func(a schedule.Autoscaler) bool { return selector.Matches(labels.Set{"app": a.Name}) })
	return pods, time.Now(), nil
}

// GetExternalMetric implements metrics.MetricsClient.
func (m measured) GetExternalMetric(name, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	_, external := m.figures(func(a schedule.Autoscaler) bool { return a.Name == name })
	return []int64{external}, time.Now(), nil
}

// doForAutoscaler does what a step of work on an autoscaler says. It reports whether the step is one.
func (t *Traffic) doForAutoscaler(s schedule.Step) bool {
	change := func(f func(spec *autoscalingv2.HorizontalPodAutoscalerSpec)) {
		model.Change(t.server, model.Autoscalers, Namespace, s.Target, func(hpa *autoscalingv2.HorizontalPodAutoscaler) { f(&hpa.Spec) })
	}
	switch s.Action {
	case schedule.SetLoad: // It follows from the time.
		if t.scaling.asked != nil {
			t.server.Look(func(truth model.Truth) {
				for _, a := range t.scaling.schedule.Autoscalers {
					if a.Name == s.Target {
						t.scaling.asked(truth, a)
					}
				}
			})
		}
	case schedule.SetLeast:
		change(func(spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
			spec.MinReplicas, spec.MaxReplicas = new(int32(s.N)), max(spec.MaxReplicas, int32(s.N))
		})
	case schedule.SetMost:
		change(func(spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
			spec.MinReplicas, spec.MaxReplicas = new(min(*spec.MinReplicas, int32(s.N))), int32(s.N)
		})
	case schedule.RemakeAutoscaler:
		var was *autoscalingv2.HorizontalPodAutoscaler
		t.server.Look(func(truth model.Truth) {
			was, _ = truth.Get(model.Autoscalers, Namespace, s.Target).(*autoscalingv2.HorizontalPodAutoscaler)
		})
		if was != nil {
			t.server.Delete(model.Autoscalers, Namespace, s.Target, nil)
			t.After(s.Delay, func() {
				t.server.TryCreate(model.Autoscalers, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: was.Name}, Spec: was.Spec})
			})
		}
	default:
		return false
	}
	return true
}
