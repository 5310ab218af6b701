// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package arms

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
	"k8s.io/kubernetes/pkg/volume/csi"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

const (
	// attachedSync is how often volumes are looked up that should be attached: what kube-controller-manager's flag is by default.
	attachedSync = time.Minute
	// attachTimeout is how long upstream's CSI plugin waits for the driver, whether or not its controller still runs.
	attachTimeout = 2*time.Minute + time.Second
)

// attachDetach makes the attach/detach controller, with the only volume plugin that attaches.
func attachDetach(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory) (attachdetach.AttachDetachController, error) {
	client, err := builder.Client(model.AttachClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", model.AttachClient, err)
	}
	core, storage := f.Core().V1(), f.Storage().V1()
	c, err := attachdetach.NewAttachDetachController(ctx, client, core.Pods(), core.Nodes(), core.PersistentVolumeClaims(), core.PersistentVolumes(), storage.CSINodes(), storage.CSIDrivers(), storage.VolumeAttachments(),
		csi.ProbeVolumePlugins(), nil, false, attachedSync, false, attachdetach.DefaultTimerConfig)
	if err != nil {
		return nil, fmt.Errorf("attach/detach controller: %w", err)
	}
	return c, nil
}
