// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/pkg/wiring"
)

var _ app.Option = wire

// wire hands this project's objects to the controllers of one term of leadership. With both gates off
// it changes nothing.
func wire(ctx context.Context, controllerContext *app.ControllerContext, root clientbuilder.ControllerClientBuilder) error {
	gates := utilfeature.DefaultFeatureGate
	consistent := gates.Enabled(features.StaleControllerConsistency)
	klog.FromContext(ctx).Info("Protection against stale caches",
		string(features.StaleControllerConsistency), consistent,
		string(features.MonitorInformerStaleness), gates.Enabled(features.MonitorInformerStaleness))
	if !consistent {
		return nil
	}
	config, err := root.Config("fresh-kcm")
	if err != nil {
		return err
	}
	client, err := root.Client("fresh-kcm")
	if err != nil {
		return err
	}
	w, err := wiring.New(ctx, config, controllerContext.RESTMapper, wiring.NewEvents(ctx, client))
	if err != nil {
		return err
	}
	consistency.SetProvider(w.Store)
	var lease *wiring.Lease
	if leadership := app.LeadershipFrom(ctx); leadership != nil {
		lease = &wiring.Lease{Leadership: leadership, Duration: leadership.LeaseDuration}
	}
	controllerContext.ClientBuilder = wiring.Clients(controllerContext.ClientBuilder, lease)
	return nil
}
