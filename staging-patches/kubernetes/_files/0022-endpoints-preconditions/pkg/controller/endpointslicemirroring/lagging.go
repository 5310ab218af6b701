// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslicemirroring

import (
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newLagging are the Services whose mirrored slices the cache does not show yet as they were written.
func (c *Controller) newLagging(slices cache.SharedInformer) consistencyutil.Lagging {
	return consistencyutil.NewLagging(c.reconciler.consistencyStore, slices, func(obj interface{}) string {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok {
			return ""
		}
		key, err := endpointsControllerKey(slice)
		if err != nil {
			return ""
		}
		return key
	}, c.queue)
}

// staleSlices reports whether these are older than what was written for the Service. If so it is looked at again once they are seen.
func (c *Controller) staleSlices(key string, service *v1.Service, slices []*discovery.EndpointSlice) bool {
	return consistencyutil.Lags(c.lagging, key, c.endpointSliceTracker.StaleSlices(service, slices), func() bool {
		now, err := endpointSlicesMirroredForService(c.endpointSliceLister, service.Namespace, service.Name)
		return err == nil && c.endpointSliceTracker.StaleSlices(service, now)
	})
}
