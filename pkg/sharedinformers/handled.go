// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

var _, _, _ consistency.HandledInformer = (*handledInformer)(nil), observedInformer{}, startedInformer{}

// handledCache is the cache of an informer as its event handlers have been told of it.
type handledCache struct{ informer *handledInformer }

// Handled implements consistency.HandledInformer.
func (i *handledInformer) Handled() consistency.LastSyncRVGetter { return handledCache{i} }

// Handled implements consistency.HandledInformer.
func (i observedInformer) Handled() consistency.LastSyncRVGetter {
	return consistency.Handled(i.SharedIndexInformer)
}

// Handled implements consistency.HandledInformer.
func (i startedInformer) Handled() consistency.LastSyncRVGetter {
	return consistency.Handled(i.SharedIndexInformer)
}

// Store is the informer's.
func (c handledCache) Store() cache.Store { return c.informer.GetStore() }

// LastStoreSyncResourceVersion is the version up to which the store has been brought and all event handlers have been told, empty if one has not been
// told of anything yet, or not all of the list that the store was replaced by.
func (c handledCache) LastStoreSyncResourceVersion() string {
	version := c.Store().LastStoreSyncResourceVersion()
	all := c.informer.all.Load()
	if all == nil {
		return version
	}
	for _, delivery := range *all {
		position := delivery.Told()
		if position == 0 {
			return ""
		}
		told := strconv.FormatUint(position, 10)
		if order, err := resourceversion.CompareResourceVersion(told, version); err == nil && order < 0 {
			version = told
		}
	}
	return version
}
