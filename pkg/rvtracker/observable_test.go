// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "k8s.io/client-go/tools/cache"

// The stores of our patched client-go are observable: without that the tracker would fall back to polling, silently.
var _ observable = cache.ResourceVersionObservable(nil)
