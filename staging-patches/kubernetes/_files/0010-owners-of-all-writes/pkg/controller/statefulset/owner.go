// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"

	"k8s.io/kubernetes/pkg/controller/history"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// forOwner returns the control with the requests of its history made for the owner in ctx. Another implementation
// than the default one is returned as it is.
func forOwner(ctx context.Context, control StatefulSetControlInterface) StatefulSetControlInterface {
	ssc, ok := control.(*defaultStatefulSetControl)
	if !ok {
		return control
	}
	own := *ssc
	own.controllerHistory = history.ForOwner(ctx, ssc.controllerHistory)
	return &own
}

// forOwner returns the pod control with its requests made for the owner in ctx (consistencyutil.WithOwner), so that
// a client can record its writes. One that makes no requests is returned as it is.
func (spc *StatefulPodControl) forOwner(ctx context.Context) *StatefulPodControl {
	om, ok := spc.objectMgr.(*realStatefulPodControlObjectManager)
	if !ok {
		return spc
	}
	own := *om
	own.ctx = consistencyutil.OwnerContext(ctx)
	return &StatefulPodControl{&own, spc.recorder}
}

func (om *realStatefulPodControlObjectManager) requests() context.Context {
	if om.ctx == nil {
		return context.TODO()
	}
	return om.ctx
}
