// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	endpointslicerec "k8s.io/endpointslice"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newLagging are the Services whose slices the cache does not show yet as they were written.
func (c *Controller) newLagging(slices cache.SharedInformer) consistencyutil.Lagging {
	return consistencyutil.NewLagging(c.consistencyStore, slices, func(obj interface{}) string {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok {
			return ""
		}
		key, err := endpointslicerec.ServiceControllerKey(slice)
		if err != nil {
			return ""
		}
		return key
	}, c.serviceQueue)
}

// staleSlices reports whether these are older than what was written for the Service. If so it is looked at again once they are seen.
func (c *Controller) staleSlices(key string, service *v1.Service, slices []*discovery.EndpointSlice) bool {
	return consistencyutil.Lags(c.lagging, key, c.endpointSliceTracker.StaleSlices(service, slices), func() bool {
		now, err := c.endpointSliceLister.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{
			discovery.LabelServiceName: service.Name, discovery.LabelManagedBy: c.reconciler.GetControllerName(),
		}))
		return err == nil && c.endpointSliceTracker.StaleSlices(service, dropEndpointSlicesPendingDeletion(now))
	})
}
