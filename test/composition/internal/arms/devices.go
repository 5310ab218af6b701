// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
)

// deviceTaintWorkers is what kube-controller-manager's flag is by default.
const deviceTaintWorkers = 8

// deviceTaints makes the controller that evicts pods from devices with taints.
func deviceTaints(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory) (controller, error) {
	const name = names.DeviceTaintEvictionController
	client, err := builder.Client(name)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	devices := f.Resource().V1()
	c := devicetainteviction.New(client, f.Core().V1().Pods(), devices.ResourceClaims(), devices.ResourceSlices(), devices.DeviceTaintRules(), devices.DeviceClasses(), name)
	return func(ctx context.Context) {
		if err := c.Run(ctx, deviceTaintWorkers); err != nil {
			panic(err)
		}
	}, nil
}
