// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// ownerClient writes status for the owner that its context has: updateReplicaSetStatus takes no context.
type ownerClient struct {
	appsclient.ReplicaSetInterface
	ctx context.Context
}

// forOwner returns the client with the status that it writes written for the owner in ctx
// (consistencyutil.WithOwner), so that it can be recorded.
func forOwner(ctx context.Context, client appsclient.ReplicaSetInterface) appsclient.ReplicaSetInterface {
	return ownerClient{client, consistencyutil.OwnerContext(ctx)}
}

// UpdateStatus implements appsclient.ReplicaSetInterface.
func (c ownerClient) UpdateStatus(_ context.Context, rs *apps.ReplicaSet, opts metav1.UpdateOptions) (*apps.ReplicaSet, error) {
	return c.ReplicaSetInterface.UpdateStatus(c.ctx, rs, opts)
}
