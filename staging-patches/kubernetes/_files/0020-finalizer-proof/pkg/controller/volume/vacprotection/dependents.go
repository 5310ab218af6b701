// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package vacprotection

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newDependents are the claims and volumes that may have a VolumeAttributesClass.
func (c *Controller) newDependents(claims coreinformers.PersistentVolumeClaimInformer, volumes coreinformers.PersistentVolumeInformer) consistencyutil.Dependents {
	return consistencyutil.NewDependents("volumeattributesclass-protection", c.queue.Add, map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		v1.Resource("persistentvolumeclaims"): claims.Informer().GetStore(),
		v1.Resource("persistentvolumes"):      volumes.Informer().GetStore(),
	})
}
