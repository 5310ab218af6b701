// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package circuitbreaker

import (
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// minEvictionDelay and maxEvictionDelay bound how long an eviction of which nothing can be known
	// waits before it is tried again; the delay doubles in between.
	minEvictionDelay = 5 * time.Second
	maxEvictionDelay = 30 * time.Second
	// reportEvictionAfter is how long an eviction waits before the pod gets an event about it.
	reportEvictionAfter = time.Minute
)

// evictionWait is one eviction's waiting for something to be known. The zero value has not waited yet.
type evictionWait struct {
	mu      sync.Mutex
	waiting bool
	since   time.Time
	tries   int
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

// again puts the eviction, due now, off. It returns for how long, whether this is the first time, and
// whether it is time to tell of it on the pod. More than maxEvictionDelay is waited only if the server
// asks for it, by atLeast.
func (w *evictionWait) again(controller string, due time.Time, atLeast time.Duration) (delay time.Duration, first, tell bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = !w.waiting
	if first {
		w.waiting, w.since, w.tries, w.told = true, due, 0, false
		metrics.WaitingEvictions(controller, 1)
	}
	delay = max(min(minEvictionDelay<<min(w.tries, 8), maxEvictionDelay), min(atLeast, time.Minute))
	w.tries++
	tell = !w.told && time.Since(w.since) >= reportEvictionAfter
	w.told = w.told || tell
	return delay, first, tell
}

// end ends the waiting, if any.
func (w *evictionWait) end(controller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting {
		w.waiting = false
		metrics.WaitingEvictions(controller, -1)
	}
}
