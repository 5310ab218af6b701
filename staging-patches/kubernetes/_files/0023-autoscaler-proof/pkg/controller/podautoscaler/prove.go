// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	coreinformers "k8s.io/client-go/informers/core/v1"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// notProvenFresh is the reason of the condition while replicas are not lowered.
const notProvenFresh = "CacheNotProvenFresh"

// follow tells the store of the caches that a replica count is lowered by.
func (a *HorizontalController) follow(hpas autoscalinginformers.HorizontalPodAutoscalerInformer, pods coreinformers.PodInformer) {
	consistencyutil.Follow(a.consistencyStore, horizontalGroupResource, hpas.Informer().GetStore())
	consistencyutil.Follow(a.consistencyStore, v1.Resource("pods"), pods.Informer().GetStore())
}

// proven returns how many replicas are desired: no fewer than there are, unless the HPA, and the pods if they were counted, are those of
// caches that are proven fresh, the pods as of when the metrics were read. More are desired without a proof. If fewer have to wait, the HPA
// comes back to the queue, and its condition says so from then on: was is the HPA as it was read, so that it is not written each time.
func (a *HorizontalController) proven(ctx context.Context, was, hpa *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale, desired int32, computed bool) int32 {
	current := scale.Spec.Replicas
	if desired >= current {
		return desired
	}
	desired, err := consistencyutil.ProveLowered(ctx, "", desired, a.counted(hpa, scale.Status.Selector, computed), horizontalGroupResource)
	if err == nil {
		return min(desired, current)
	}
	said, able := condition(was, autoscalingv2.ScalingLimited), condition(was, autoscalingv2.AbleToScale)
	if able.Reason == "FailedUpdateScale" {
		*condition(hpa, autoscalingv2.AbleToScale) = *able // It is not tried now, and would be said to be able until it fails again.
		return current
	}
	if consistencyutil.Again(err) && said.Reason != notProvenFresh {
		return current
	}
	*condition(hpa, autoscalingv2.ScalingLimited) = *said // It may have said so before: then it says since when.
	setCondition(hpa, autoscalingv2.ScalingLimited, v1.ConditionTrue, notProvenFresh, "the replicas are not lowered to %d until the caches of pods and of autoscalers are proven fresh", desired)
	return current
}

// counted are the pods that replicas are computed from; none for a total that is divided by what each pod is to have of it.
func (a *HorizontalController) counted(hpa *autoscalingv2.HorizontalPodAutoscaler, selector string, computed bool) (none consistencyutil.Counted) {
	if !computed || !slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return (m.External == nil || m.External.Target.AverageValue == nil) && (m.Object == nil || m.Object.Target.Type != autoscalingv2.AverageValueMetricType)
	}) {
		return none
	}
	return consistencyutil.Counted{Resource: v1.Resource("pods"), List: func() (out []any, err error) {
		of, err := labels.Parse(selector)
		if err != nil {
			return nil, err
		}
		pods, err := a.podLister.Pods(hpa.Namespace).List(of)
		for _, pod := range pods {
			out = append(out, pod)
		}
		return out, err
	}}
}

// condition is the HPA's of that type, or one that says nothing.
func condition(hpa *autoscalingv2.HorizontalPodAutoscaler, of autoscalingv2.HorizontalPodAutoscalerConditionType) *autoscalingv2.HorizontalPodAutoscalerCondition {
	for i := range hpa.Status.Conditions {
		if c := &hpa.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return &autoscalingv2.HorizontalPodAutoscalerCondition{Type: of}
}
