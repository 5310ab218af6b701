// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

package endpoint

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"k8s.io/kubernetes/pkg/controller"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newLagging are the Services whose Endpoints the cache does not show yet as they were written.
func (e *Controller) newLagging(endpoints cache.SharedInformer) consistencyutil.Lagging {
	return consistencyutil.NewLagging(e.consistencyStore, endpoints, func(obj interface{}) string {
		key, err := controller.KeyFunc(obj)
		if err != nil {
			return ""
		}
		return key
	}, e.queue)
}

// isStale reports whether these Endpoints are older than what was written. If so their Service is looked at again once that is seen.
func (e *Controller) isStale(key string, endpoints *v1.Endpoints) bool {
	return consistencyutil.Lags(e.lagging, key, e.staleEndpointsTracker.IsStale(endpoints), func() bool {
		now, err := e.endpointsLister.Endpoints(endpoints.Namespace).Get(endpoints.Name)
		return err == nil && e.staleEndpointsTracker.IsStale(now)
	})
}
