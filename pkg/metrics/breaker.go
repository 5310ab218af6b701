// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

var (
	breakerOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "breaker_open", StabilityLevel: metrics.ALPHA,
		Help: "1 while the controller's breaker is open because a live read has shown a stale cache, else 0.",
	}, []string{"controller"})
	breakerTrips = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "breaker_trips_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller's breaker opened.",
	}, []string{"controller"})
	heldPasses = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "breaker_held_passes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of passes in which node lifecycle marked no silent node because the breaker was open and live reads failed.",
	}, []string{"controller"})
	verifications = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "verifications_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller verified the reason for a disruptive action, by evidence (proof, list or get) and outcome (confirmed, refuted, or put off).",
	}, []string{"controller", "group", "resource", "by", "outcome"})
)

// InitBreaker makes the series of a controller's circuit breaker exist at zero. Call it after Register.
func InitBreaker(controller string) {
	breakerOpen.WithLabelValues(controller).Set(0)
	breakerTrips.WithLabelValues(controller).Add(0)
	heldPasses.WithLabelValues(controller).Add(0)
}

// BreakerOpened counts a trip of a controller's circuit breaker.
func BreakerOpened(controller string) {
	breakerTrips.WithLabelValues(controller).Inc()
	breakerOpen.WithLabelValues(controller).Set(1)
}

// BreakerClosed says that a controller's circuit breaker is closed.
func BreakerClosed(controller string) { breakerOpen.WithLabelValues(controller).Set(0) }

// HeldPass counts a pass that could judge no silent node.
func HeldPass(controller string) { heldPasses.WithLabelValues(controller).Inc() }

// Verifications adds n to the verifications of what a controller's disruptive actions depend on.
func Verifications(controller string, r schema.GroupResource, by, outcome string, n int) {
	verifications.WithLabelValues(controller, r.Group, r.Resource, by, outcome).Add(float64(n))
}
