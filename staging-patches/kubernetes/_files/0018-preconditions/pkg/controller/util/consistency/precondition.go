// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// OnlyAsRead has a deletion spare an object that is another one, or has changed, since it was read, if the store can tell
// what is fresh. A deletion that is refused (Replaced) is not wanted until the cache has the change.
func OnlyAsRead(store ConsistencyStore, read metav1.Object, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	if Proves(store) {
		options.Preconditions = &metav1.Preconditions{UID: ptr.To(read.GetUID()), ResourceVersion: ptr.To(read.GetResourceVersion())}
	}
	return options
}
