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
		tries = &comeback{after: statusRetry}
		s.statuses[owner] = tries
	}
	s.comeBack(tries, func() {
		s.mu.Lock()
		if s.held.actionOf(owner) == nil && s.statuses[owner] == tries {
			delete(s.statuses, owner)
		}
		s.mu.Unlock()
		s.wake(owner)
	})
}

// forgetStatus has the owner not come back for its status.
func (s *Store) forgetStatus(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.statuses, owner)
}
