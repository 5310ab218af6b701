// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// ForOwner returns the history with its requests made for the owner in ctx (consistencyutil.WithOwner), so that
// a client can record its writes. A history that makes no requests is returned as it is.
func ForOwner(ctx context.Context, history Interface) Interface {
	rh, ok := history.(*realHistory)
	if !ok {
		return history
	}
	own := *rh
	own.ctx = consistencyutil.OwnerContext(ctx)
	return &own
}

func (rh *realHistory) requests() context.Context {
	if rh.ctx == nil {
		return context.TODO()
	}
	return rh.ctx
}
