// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
)

var _ app.Option = wire

// wire hands this project's objects to the controllers of one term of leadership. With both gates off
// it changes nothing.
func wire(ctx context.Context, _ *app.ControllerContext) error {
	gates := utilfeature.DefaultFeatureGate
	klog.FromContext(ctx).Info("Protection against stale caches",
		string(features.StaleControllerConsistency), gates.Enabled(features.StaleControllerConsistency),
		string(features.MonitorInformerStaleness), gates.Enabled(features.MonitorInformerStaleness))
	return nil
}
