// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/scale"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kcm "k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/utils/clock"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

// What kube-controller-manager's flags are by default.
const (
	quotaResync    = 5 * time.Minute
	quotaDiscovery = 30 * time.Second
	// PodGCPeriod is how often podgc looks.
	PodGCPeriod = 20 * time.Second
)

// The names of clients.
const (
	PodGCClient      = "pod-garbage-collector"
	DisruptionClient = "disruption-controller"
)

// buildGuards makes podgc, quota and disruption.
func buildGuards(ctx context.Context, builder clientbuilder.ControllerClientBuilder, ofController func(name string) informers.SharedInformerFactory, f informers.SharedInformerFactory, observed informerfactory.InformerFactory,
	started <-chan struct{}, ended int) (run []controller, parts []any, err error) {
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{PodGCClient, "resourcequota-controller", DisruptionClient} {
		if clients[name], err = builder.Client(name); err != nil {
			return nil, nil, fmt.Errorf("client of %s: %w", name, err)
		}
	}
	own := ofController(names.PodGarbageCollectorController).Core().V1()
	gc := podgc.NewPodGC(ctx, clients[PodGCClient], own.Pods(), own.Nodes(), ended)
	own, apps, policies := ofController(names.DisruptionController).Core().V1(), ofController(names.DisruptionController).Apps().V1(), ofController(names.DisruptionController).Policy().V1()
	budgets := disruption.NewDisruptionController(ctx, own.Pods(), policies.PodDisruptionBudgets(), own.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(),
		clients[DisruptionClient], model.Mapper(), scales{client: clients[DisruptionClient]}, clients[DisruptionClient].Discovery())
	lister := generic.ListerFuncForResourceFunc(f.ForResource)
	quotas, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               clients["resourcequota-controller"].CoreV1(),
		ResourceQuotaInformer:     f.Core().V1().ResourceQuotas(),
		ResyncPeriod:              kcm.StaticResyncPeriodFunc(quotaResync),
		InformerFactory:           observed,
		ReplenishmentResyncPeriod: kcm.StaticResyncPeriodFunc(resync),
		DiscoveryFunc:             model.Discover,
		IgnoredResourcesFunc:      quotainstall.DefaultIgnoredResources,
		InformersStarted:          started,
		// The other evaluators count what the model does not serve.
		Registry:     generic.NewRegistry([]quota.Evaluator{core.NewPodEvaluator(lister, clock.RealClock{}), core.NewPersistentVolumeClaimEvaluator(lister)}),
		UpdateFilter: quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("quota: %w", err)
	}
	return []controller{
		gc.Run,
		func(ctx context.Context) { budgets.Run(ctx, Workers) },
		func(ctx context.Context) { quotas.Run(ctx, Workers) },
		func(ctx context.Context) { quotas.Sync(ctx, model.Discover, quotaDiscovery) },
	}, []any{gc, budgets, quotas}, nil
}

// scales reads the scale of a ReplicaSet or StatefulSet from the server, as disruption does where its cache has none.
type scales struct {
	scale.ScalesGetter
	client kubernetes.Interface
}

func (s scales) Scales(namespace string) scale.ScaleInterface {
	return scaleReader{client: s.client, namespace: namespace}
}

type scaleReader struct {
	scale.ScaleInterface
	client    kubernetes.Interface
	namespace string
}

func (s scaleReader) Get(ctx context.Context, resource schema.GroupResource, name string, opts metav1.GetOptions) (*autoscalingv1.Scale, error) {
	var meta metav1.ObjectMeta
	var replicas *int32
	switch resource.Resource {
	case model.ReplicaSets.GroupVersionResource.Resource:
		x, err := s.client.AppsV1().ReplicaSets(s.namespace).Get(ctx, name, opts)
		if err != nil {
			return nil, err
		}
		meta, replicas = x.ObjectMeta, x.Spec.Replicas
	case model.StatefulSets.GroupVersionResource.Resource:
		x, err := s.client.AppsV1().StatefulSets(s.namespace).Get(ctx, name, opts)
		if err != nil {
			return nil, err
		}
		meta, replicas = x.ObjectMeta, x.Spec.Replicas
	default:
		return nil, fmt.Errorf("%s of %s: no scale in the model", resource, corev1.SchemeGroupVersion)
	}
	return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace, UID: meta.UID}, Spec: autoscalingv1.ScaleSpec{Replicas: *replicas}}, nil
}
