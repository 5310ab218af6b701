// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// minEvictionDelay and maxEvictionDelay bound how long an eviction of which nothing can be known
	// waits before it is tried again; the delay doubles in between. One that the server refuses waits for up to
	// maxRefusedDelay, as long as what fails in upstream's workqueues.
	minEvictionDelay = 5 * time.Second
	maxEvictionDelay = 30 * time.Second
	maxRefusedDelay  = 1000 * time.Second
	// reportEvictionAfter is how long an eviction waits before the pod gets an event about it.
	reportEvictionAfter = time.Minute
)

// cancelReason is why an eviction was not carried out.
type cancelReason string

const (
	// cancelNotTainted: the taint is gone, or the device that had it.
	cancelNotTainted cancelReason = "NotTainted"
	// cancelTolerated: the pod tolerates the taints without limit.
	cancelTolerated cancelReason = "Tolerated"
	// cancelTooEarly: the pod tolerates the taints for longer; the eviction is put off until then.
	cancelTooEarly cancelReason = "TooEarly"
	// cancelReplaced: another pod has the name now, or it is elsewhere.
	cancelReplaced cancelReason = "Replaced"
)

// waitCause is why an eviction waits.
type waitCause string

const (
	// waitUnknown: the cache is not proven fresh, and a live read gave no answer.
	waitUnknown waitCause = "StateUnknown"
	// waitFailed: the requests that evict the pod failed.
	waitFailed waitCause = "RequestFailed"
)

// initMetrics makes the series of a controller that evicts pods exist at zero.
func initMetrics(controller string) {
	for _, reason := range []cancelReason{cancelNotTainted, cancelTolerated, cancelTooEarly, cancelReplaced} {
		metrics.CancelledEvictions(controller, string(reason), 0)
	}
	for _, cause := range []waitCause{waitUnknown, waitFailed} {
		metrics.EvictionWaits(controller, string(cause), 0)
	}
	metrics.WaitingEvictions(controller, 0)
}

// evictionWaits are the evictions of one controller that wait now.
type evictionWaits struct {
	controller string

	mu      sync.Mutex
	waiting map[*evictionWait]livereads.PutOff
}

func newEvictionWaits(controller string) *evictionWaits {
	return &evictionWaits{controller: controller, waiting: map[*evictionWait]livereads.PutOff{}}
}

// Waits returns the evictions that wait now, in any order.
func (l *evictionWaits) Waits() []livereads.PutOff {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.waiting))
}

// set notes that w waits, or goes on waiting.
func (l *evictionWaits) set(w *evictionWait, wait livereads.PutOff) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.waiting[w]; !known {
		metrics.WaitingEvictions(l.controller, 1)
	}
	l.waiting[w] = wait
}

func (l *evictionWaits) remove(w *evictionWait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.waiting[w]; known {
		delete(l.waiting, w)
		metrics.WaitingEvictions(l.controller, -1)
	}
}

// evictionWait is one eviction's waiting for something to be known. The zero value has not waited yet.
type evictionWait struct {
	mu      sync.Mutex
	waiting bool
	since   time.Time
	tries   int
	// refused is how often the server has refused it.
	refused int
	told    bool
}

// dueSince is when the eviction was due first, if it is tried now for due.
func (w *evictionWait) dueSince(due time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting {
		return w.since
	}
	return due
}

// again puts the eviction, due now, off, as wait says but for Since. It returns for how long, whether this is
// the first time, and whether it is time to tell of it on the pod. More than maxEvictionDelay is waited only if
// the server has refused it, or asks for that, by atLeast.
func (w *evictionWait) again(l *evictionWaits, wait livereads.PutOff, due time.Time, refused bool, atLeast time.Duration) (delay time.Duration, first, tell bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = !w.waiting
	if first {
		w.waiting, w.since, w.tries, w.refused, w.told = true, due, 0, 0, false
	}
	wait.Since = w.since
	l.set(w, wait)
	if refused {
		delay = min(minEvictionDelay<<min(w.refused, 8), maxRefusedDelay)
		w.refused++
	} else {
		delay = min(minEvictionDelay<<min(w.tries, 8), maxEvictionDelay)
		w.tries++
	}
	delay = max(delay, min(atLeast, time.Minute))
	tell = !w.told && time.Since(w.since) >= reportEvictionAfter
	w.told = w.told || tell
	return delay, first, tell
}

// end ends the waiting, if any.
func (w *evictionWait) end(l *evictionWaits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = false
	l.remove(w)
}
