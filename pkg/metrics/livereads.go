// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

var (
	liveReads = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "live_reads_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of live reads (pages of a list counted singly) made because a cache could not be proven fresh, by outcome.",
	}, []string{"controller", "group", "resource", "outcome"})
	budgetWaits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "live_read_budget_waits_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times a live read waited because the process had spent its budget of live reads, by whether it was served in time.",
	}, []string{"controller", "outcome"})
)

// LiveReads adds n to the reads from the server.
func LiveReads(controller string, r schema.GroupResource, outcome string, n int) {
	liveReads.WithLabelValues(controller, r.Group, r.Resource, outcome).Add(float64(n))
}

// BudgetWaits adds n to the waits for the budget of live reads.
func BudgetWaits(controller, outcome string, n int) {
	budgetWaits.WithLabelValues(controller, outcome).Add(float64(n))
}
