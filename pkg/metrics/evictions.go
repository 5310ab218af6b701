// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "k8s.io/component-base/metrics"

var (
	cancelledEvictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "cancelled_evictions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of evictions that were due by the cache and that the controller cancelled by the server's state, by reason.",
	}, []string{"controller", "reason"})
	evictionWaits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "eviction_waits_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller put off an eviction that was due, by cause: it could not verify the taint, or its requests failed.",
	}, []string{"controller", "cause"})
	waitingEvictions = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "waiting_evictions", StabilityLevel: metrics.ALPHA,
		Help: "Number of evictions that are due and that the controller puts off until it can verify them.",
	}, []string{"controller"})
)

// CancelledEvictions adds n to the evictions that were not carried out.
func CancelledEvictions(controller, reason string, n int) {
	cancelledEvictions.WithLabelValues(controller, reason).Add(float64(n))
}

// EvictionWaits adds n to the times that an eviction was put off.
func EvictionWaits(controller, cause string, n int) {
	evictionWaits.WithLabelValues(controller, cause).Add(float64(n))
}

// WaitingEvictions adds n to the evictions that wait now.
func WaitingEvictions(controller string, n int) {
	waitingEvictions.WithLabelValues(controller).Add(float64(n))
}
