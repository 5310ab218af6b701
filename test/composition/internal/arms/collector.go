// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

// CollectorClient is the name of the garbage collector's client.
const CollectorClient = "generic-garbage-collector"

// What kube-controller-manager has by default.
const (
	collectorWorkers = 20
	collectorSync    = 30 * time.Second
)

// collector makes the garbage collector.
func collector(ctx context.Context, builder clientbuilder.ControllerClientBuilder, graph metadata.Interface, observed informerfactory.InformerFactory, started <-chan struct{}) ([]controller, *garbagecollector.GarbageCollector, error) {
	client, err := builder.Client(CollectorClient)
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", CollectorClient, err)
	}
	config, err := builder.Config(CollectorClient)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration of %s: %w", CollectorClient, err)
	}
	config.QPS *= 2 // as upstream has it
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("metadata client of %s: %w", CollectorClient, err)
	}
	mapper := resettable{model.Mapper()}
	builds := garbagecollector.NewDependencyGraphBuilder(ctx, graph, mapper, garbagecollector.DefaultIgnoredResources(), observed, started)
	gc, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, mapper, builds)
	if err != nil {
		return nil, nil, fmt.Errorf("garbage collector: %w", err)
	}
	return []controller{
		func(ctx context.Context) { gc.Run(ctx, collectorWorkers, collectorSync) },
		func(ctx context.Context) { gc.Sync(ctx, discovered{}, collectorSync) },
	}, gc, nil
}

// resettable is a mapper of resources that stay.
type resettable struct{ meta.RESTMapper }

// Reset implements meta.ResettableRESTMapper.
func (resettable) Reset() {}

// discovered is what the garbage collector asks discovery.
type discovered struct {
	discovery.ServerResourcesInterface
}

// ServerPreferredResources implements discovery.ServerResourcesInterface.
func (discovered) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return model.DiscoverAll(), nil
}
