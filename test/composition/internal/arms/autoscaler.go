// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/scale"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

// AutoscalerClient is the name of the client of the controller of autoscalers.
const AutoscalerClient = "horizontal-pod-autoscaler"

// What kube-controller-manager's flags are by default.
const (
	// AutoscalerPeriod is how often an autoscaler is looked at, LowerAfter its window of stabilization before replicas are lowered.
	AutoscalerPeriod = 15 * time.Second
	LowerAfter       = 5 * time.Minute
	// Tolerance is the part of the load by which replicas may be too few or too many.
	Tolerance = 0.1
	// CPUInitialization and ReadinessDelay say for how long what a pod that starts uses does not count.
	CPUInitialization, ReadinessDelay = 5 * time.Minute, 30 * time.Second
)

// autoscalers makes the controller of autoscalers.
func autoscalers(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory, load metrics.MetricsClient) (*podautoscaler.HorizontalController, error) {
	client, err := builder.Client(AutoscalerClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", AutoscalerClient, err)
	}
	config, err := builder.Config(AutoscalerClient)
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", AutoscalerClient, err)
	}
	scales, err := scale.NewForConfig(config, model.Mapper(), dynamic.LegacyAPIPathResolverFunc, oneScale{})
	if err != nil {
		return nil, fmt.Errorf("scale client of %s: %w", AutoscalerClient, err)
	}
	return podautoscaler.NewHorizontalController(ctx, client.CoreV1(), scales, client.AutoscalingV2(), model.Mapper(), load,
		f.Autoscaling().V2().HorizontalPodAutoscalers(), f.Core().V1().Pods(), AutoscalerPeriod, LowerAfter, Tolerance, CPUInitialization, ReadinessDelay), nil
}

// oneScale says of which kind the scale of every resource is.
type oneScale struct{}

// ScaleForResource implements scale.ScaleKindResolver.
func (oneScale) ScaleForResource(schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale"), nil
}
