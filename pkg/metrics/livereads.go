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
		Help: "Number of reads from the server, one for each page of a list, made because a cache could not be proven fresh, by what came of them.",
	}, []string{"controller", "group", "resource", "outcome"})
	budgetWaits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "live_read_budget_waits_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times a live read had to wait because the process's budget of them was spent, by whether it was served in time.",
	}, []string{"controller", "outcome"})
)

// ReadOutcome is what came of a live read.
type ReadOutcome string

// The outcomes of a live read.
const (
	ReadOK        ReadOutcome = "OK"
	ReadNotFound  ReadOutcome = "NotFound"
	ReadForbidden ReadOutcome = "Forbidden"
	ReadThrottled ReadOutcome = "Throttled"
	ReadError     ReadOutcome = "Error"
)

// InitLiveReads makes the series of a controller that may read the resources from the server exist at
// zero. Call it after Register.
func InitLiveReads(controller string, resources ...schema.GroupResource) {
	for _, r := range resources {
		for _, outcome := range []ReadOutcome{ReadOK, ReadNotFound, ReadForbidden, ReadThrottled, ReadError} {
			liveReads.WithLabelValues(controller, r.Group, r.Resource, string(outcome)).Add(0)
		}
	}
	for _, served := range []bool{true, false} {
		budgetWaits.WithLabelValues(controller, waitOutcome(served)).Add(0)
	}
}

// LiveRead counts a read from the server.
func LiveRead(controller string, r schema.GroupResource, outcome ReadOutcome) {
	liveReads.WithLabelValues(controller, r.Group, r.Resource, string(outcome)).Inc()
}

// BudgetWait counts a wait for the budget of live reads. Served is false if whoever waited gave up.
func BudgetWait(controller string, served bool) {
	budgetWaits.WithLabelValues(controller, waitOutcome(served)).Inc()
}

func waitOutcome(served bool) string {
	if served {
		return "Served"
	}
	return "GivenUp"
}
