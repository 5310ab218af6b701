// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
)

// waitsToStart says, by the names of --controllers, which controllers wait before they start until their caches are proven as new as the
// start of leadership.
func waitsToStart(exempt sets.Set[string]) func(controller string) bool {
	return func(controller string) bool { return inventory.WaitsToStart(controller) && !exempt.Has(controller) }
}
