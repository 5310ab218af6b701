// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"fmt"
	"time"
)

const (
	// watchSlack is how long after its timeoutSeconds the prover gives up on a watch. It doubles up to maxWatchSlack while
	// watches bring nothing in time: events may be late for as long as a server is slow.
	watchSlack    = 2 * time.Second
	maxWatchSlack = time.Minute
	// lateFor is for how long a collection is listed instead, if it can be.
	lateFor = time.Minute
	// listShare times the number of objects is the least time between two lists of a collection that is not small: at most a
	// thousand objects a second.
	listShare = time.Millisecond
)

// lateness is what watches have shown that opened and brought no bookmark in time. Lists may still be prompt.
type lateness struct {
	until  time.Time
	slack  time.Duration // 0: the usual
	listed time.Time
}

// slack is how long after its timeoutSeconds the prover gives up on the next watch.
func (r *resource) slack() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(watchSlack, r.late.slack)
}

// cameLate notes how a watch has ended that had opened.
func (r *resource) cameLate(f *failure, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	usual := time.Duration(WatchSeconds)*time.Second + watchSlack
	switch {
	case f != nil && (f.reason == ReasonTimeout || f.reason == reasonNoBookmark):
		r.late.until = time.Now().Add(lateFor)
		r.late.slack = min(2*max(watchSlack, r.late.slack), maxWatchSlack)
	case took <= usual:
		r.late = lateness{}
	}
}

// eventsAreLate says that a list will answer sooner than a watch.
func (r *resource) eventsAreLate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.late.until)
}

// listAgain fails if a collection of n objects was listed too recently.
func (r *resource) listAgain(n int) *failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if wait := r.late.listed.Add(time.Duration(n) * listShare).Sub(now); wait > 0 {
		return &failure{reason: ReasonTimeout, retryAfter: wait, err: fmt.Errorf("watches bring nothing in time, and %d objects were listed a moment ago", n)}
	}
	r.late.listed = now
	return nil
}
