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
		Help: "1 while the controller's circuit breaker is open because a cache was shown to be stale, 0 while it is closed.",
	}, []string{"controller"})
	breakerTrips = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "breaker_trips_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller's circuit breaker opened.",
	}, []string{"controller"})
	heldPasses = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "breaker_held_passes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of passes that marked no silent node because the circuit breaker was open and live reads failed.",
	}, []string{"controller"})
	verifications = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "verifications_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times what a disruptive action depends on was verified, by what it was judged by last and whether it was confirmed, refuted or neither.",
	}, []string{"controller", "group", "resource", "by", "outcome"})
)

// Evidence is what a verification was judged by last.
type Evidence string

// What a verification may be judged by.
const (
	ByProof Evidence = "Proof"
	ByList  Evidence = "List"
	ByGet   Evidence = "Get"
)

// Verdict is the outcome of a verification.
type Verdict string

// The outcomes of a verification. Refuted means that the action was rightly not taken, Inconclusive
// that it was put off.
const (
	Confirmed    Verdict = "Confirmed"
	Refuted      Verdict = "Refuted"
	Inconclusive Verdict = "Inconclusive"
)

// InitBreaker makes the series of a controller's circuit breaker exist at zero. Call it after Register.
func InitBreaker(controller string) {
	breakerOpen.WithLabelValues(controller).Set(0)
	breakerTrips.WithLabelValues(controller).Add(0)
	heldPasses.WithLabelValues(controller).Add(0)
}

// InitVerifications makes the series of a controller's verifications exist at zero. Call it after
// Register.
func InitVerifications(controller string, resources ...schema.GroupResource) {
	for _, r := range resources {
		for _, by := range []Evidence{ByProof, ByList, ByGet} {
			for _, outcome := range []Verdict{Confirmed, Refuted, Inconclusive} {
				verifications.WithLabelValues(controller, r.Group, r.Resource, string(by), string(outcome)).Add(0)
			}
		}
	}
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

// Verification counts the verification of what a disruptive action depends on.
func Verification(controller string, r schema.GroupResource, by Evidence, outcome Verdict) {
	verifications.WithLabelValues(controller, r.Group, r.Resource, string(by), string(outcome)).Inc()
}
