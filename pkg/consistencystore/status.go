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

// statusRetry is after how long a status is tried again that has not failed before, as by the queue; each further time after twice as long, up to longestPause.
const statusRetry = 5 * time.Millisecond

// retryStatus has an owner come back soon whose status could not be written while an action of it waits for a proof: its controller then leaves the
// queue alone. The queue's backoff is not for that: each time that the owner comes back for its action, and fails, would double it.
func (s *Store) retryStatus(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses == nil || !s.actionWaits(owner) {
		return
	}
	tries := s.statuses[owner]
	if tries == nil {
		// Before the action waited the queue may have had it tried.
		tries = &comeback{after: queueDelay(s.refusals.failures(owner))}
		s.statuses[owner] = tries
	}
	s.comeBack(tries, func() {
		s.mu.Lock()
		if !s.actionWaits(owner) && s.statuses[owner] == tries {
			delete(s.statuses, owner)
		}
		s.mu.Unlock()
		s.wake(owner)
	})
}

// actionWaits reports whether an action of the owner waits for a proof. The wait for one that another reconcile has proven goes on until its own proof comes, but the owner's
// reconciles do not put the action off any more. mu must be held.
func (s *Store) actionWaits(owner types.NamespacedName) bool {
	r := s.held.actionOf(owner)
	return r != nil && !r.forgotten
}

// forgetStatus has the owner not come back for its status.
func (s *Store) forgetStatus(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.statuses, owner)
}
