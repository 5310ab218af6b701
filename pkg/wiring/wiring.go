// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// Clients returns a builder whose clients record the writes of every reconcile in the store of the
// controller that makes it.
func Clients(builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
	return recordingBuilder{builder}
}

// Provider returns what makes the controllers' consistency stores, all of them kept by tracker.
func Provider(tracker *rvtracker.Tracker) consistency.Provider {
	return func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		tracked := make(map[schema.GroupResource]rvtracker.Store, len(stores))
		for resource, s := range stores {
			// Upstream hands over the informers' stores, as the narrowest interface that it needs.
			if t, ok := s.(rvtracker.Store); ok {
				tracked[resource] = t
			}
		}
		metrics.Tracker{}.Init(controller, slices.Collect(maps.Keys(tracked))...)
		s := &store{}
		s.Controller = tracker.ForController(controller, tracked, s.wake)
		return s
	}
}
