// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownResource is the resource of the objects that the controller reconciles, as its consistency store knows
// it: a ReplicationManager is a ReplicaSetController by another name.
func (rsc *ReplicaSetController) ownResource() schema.GroupResource {
	if rsc.Kind == "ReplicationController" {
		return v1.Resource("replicationcontrollers")
	}
	return replicaSetGroupResource
}
