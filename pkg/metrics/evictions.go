// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "k8s.io/component-base/metrics"

var (
	cancelledEvictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "cancelled_evictions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of evictions that were due by the cache and not carried out because the server's state did not call for them, by reason.",
	}, []string{"controller", "reason"})
	evictionWaits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "eviction_waits_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times an eviction that was due was put off, by what could not be had for it.",
	}, []string{"controller", "cause"})
	waitingEvictions = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "waiting_evictions", StabilityLevel: metrics.ALPHA,
		Help: "Number of evictions that are due and wait until it can be known whether the server's state calls for them.",
	}, []string{"controller"})
)

// CancelReason is why an eviction was not carried out.
type CancelReason string

// The reasons to cancel an eviction.
const (
	// CancelNotTainted: the taint is gone, or the node or device that had it.
	CancelNotTainted CancelReason = "NotTainted"
	// CancelTolerated: the pod tolerates the taints for ever.
	CancelTolerated CancelReason = "Tolerated"
	// CancelTooEarly: the pod tolerates the taints for longer; the eviction is put off until then.
	CancelTooEarly CancelReason = "TooEarly"
	// CancelReplaced: another pod has the name now, or it is elsewhere.
	CancelReplaced CancelReason = "Replaced"
)

// WaitCause is why an eviction waits.
type WaitCause string

// The causes of a wait.
const (
	// WaitUnknown: the cache is not proven fresh, and a live read gave no answer.
	WaitUnknown WaitCause = "StateUnknown"
	// WaitFailed: the requests that evict the pod failed.
	WaitFailed WaitCause = "RequestFailed"
)

// InitEvictions makes the series of a controller that evicts pods exist at zero. Call it after Register.
func InitEvictions(controller string) {
	for _, reason := range []CancelReason{CancelNotTainted, CancelTolerated, CancelTooEarly, CancelReplaced} {
		cancelledEvictions.WithLabelValues(controller, string(reason)).Add(0)
	}
	for _, cause := range []WaitCause{WaitUnknown, WaitFailed} {
		evictionWaits.WithLabelValues(controller, string(cause)).Add(0)
	}
	waitingEvictions.WithLabelValues(controller).Add(0)
}

// EvictionCancelled counts an eviction that was not carried out.
func EvictionCancelled(controller string, reason CancelReason) {
	cancelledEvictions.WithLabelValues(controller, string(reason)).Inc()
}

// EvictionWaits counts an eviction that was put off.
func EvictionWaits(controller string, cause WaitCause) {
	evictionWaits.WithLabelValues(controller, string(cause)).Inc()
}

// WaitingEvictions adds n to the evictions that wait now.
func WaitingEvictions(controller string, n int) {
	waitingEvictions.WithLabelValues(controller).Add(float64(n))
}
