// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroupprotection

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newDependents are the pods that may be of a PodGroup.
func (c *Controller) newDependents(pods coreinformers.PodInformer) consistencyutil.Dependents {
	return consistencyutil.NewDependents("podgroup-protection", c.queue.Add, map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		v1.Resource("pods"): pods.Informer().GetStore(),
	})
}
