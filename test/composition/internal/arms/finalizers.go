// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	"k8s.io/kubernetes/pkg/controller/volume/vacprotection"
)

// finalizerControllers makes the controllers of ServiceCIDRs, VolumeAttributesClasses and PodGroups, which keep a finalizer on what is used.
func finalizerControllers(ctx context.Context, builder clientbuilder.ControllerClientBuilder, ofController func(name string) informers.SharedInformerFactory) ([]runner, error) {
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{names.ServiceCIDRController, names.VolumeAttributesClassProtectionController, names.PodGroupProtectionController} {
		c, err := builder.Client(name)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
		clients[name] = c
	}
	networking := ofController(names.ServiceCIDRController).Networking().V1()
	f := ofController(names.VolumeAttributesClassProtectionController)
	classes, err := vacprotection.NewVACProtectionController(klog.FromContext(ctx), clients[names.VolumeAttributesClassProtectionController],
		f.Core().V1().PersistentVolumeClaims(), f.Core().V1().PersistentVolumes(), f.Storage().V1().VolumeAttributesClasses())
	if err != nil {
		return nil, fmt.Errorf("controller of VolumeAttributesClasses: %w", err)
	}
	f = ofController(names.PodGroupProtectionController)
	groups, err := podgroupprotection.NewPodGroupProtectionController(klog.FromContext(ctx), f.Scheduling().V1beta1().PodGroups(), f.Core().V1().Pods(), clients[names.PodGroupProtectionController])
	if err != nil {
		return nil, fmt.Errorf("controller of PodGroups: %w", err)
	}
	return []runner{servicecidrs.NewController(ctx, networking.ServiceCIDRs(), networking.IPAddresses(), clients[names.ServiceCIDRController]), classes, groups}, nil
}
