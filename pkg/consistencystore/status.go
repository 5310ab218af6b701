// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Controllers whose reconcile returns one error: where an action waits for a proof, it is that, and not that the status could not be written.
const (
	daemonSetStore   = "daemonset"
	statefulSetStore = "statefulset"
)

// statusRetry is after how long a status is tried again for the first time, as by the queue; each further time after twice as long, up to longestPause.
const statusRetry = 5 * time.Millisecond

// statusTries are those of one owner's status.
type statusTries struct {
	after   time.Duration // the next
	at      time.Time     // when the last one failed, also one that something else had caused
	pending bool
}

// retryStatus has an owner come back soon whose status could not be written while an action of it waits for a proof: its controller then leaves the
// queue alone. The queue's backoff is not for that: each time that the owner comes back for its action, and fails, would double it.
func (s *Store) retryStatus(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses == nil || s.held.actionOf(owner) == nil {
		return
	}
	tries := s.statuses[owner]
	if tries == nil {
		tries = &statusTries{after: statusRetry}
		s.statuses[owner] = tries
	}
	tries.at = time.Now()
	if tries.pending {
		return
	}
	tries.pending = true
	after := tries.after
	tries.after = min(2*after, longestPause)
	go func() {
		for left := after; left > 0; {
			select {
			case <-time.After(left):
			case <-s.ctx.Done():
				return
			}
			s.mu.Lock()
			left = time.Until(tries.at.Add(after))
			s.mu.Unlock()
		}
		s.mu.Lock()
		tries.pending = false
		if s.held.actionOf(owner) == nil && s.statuses[owner] == tries {
			delete(s.statuses, owner)
		}
		s.mu.Unlock()
		s.wake(owner)
	}()
}
