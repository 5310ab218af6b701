// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// RetryAfter notes that the server has refused a write for the owner, and asks to send it again after that time. client-go would do so ten times, beneath the controller, whatever has changed
// meanwhile. In place of that EnsureReady refuses the owner for so long, and for longestPause at most; then it comes back to the queue, and its controller decides again. A CronJob, whose
// controller waits only briefly, and an autoscaler, which reads from the server what it changes, are left to client-go.
func (s *Store) RetryAfter(owner types.NamespacedName, what transport.Write, after time.Duration) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prover == nil || s.add == nil || s.brief || s.name == autoscaler {
		return false
	}
	since, at := time.Now(), time.Now().Add(min(after, longestPause))
	waits := s.retrying[owner]
	if waits != nil && !waits.notBefore.Before(at) {
		return true
	}
	if waits != nil {
		since = waits.since
	}
	s.retrying[owner] = &hold{reason: stalenessz.ForAction, resource: what.Resource, since: since, notBefore: at, failed: true}
	if waits == nil || waits.notBefore.IsZero() { // Else it is one of several that the server has refused together.
		go s.comeBackAsAsked(owner)
	}
	return true
}

// comeBackAsAsked has the owner come back when the server does not ask to wait any more.
func (s *Store) comeBackAsAsked(owner types.NamespacedName) {
	for {
		s.mu.Lock()
		h := s.retrying[owner]
		if h == nil || h.notBefore.IsZero() {
			s.mu.Unlock()
			return // It is gone.
		}
		left, add := time.Until(h.notBefore), s.add
		if left <= 0 {
			delete(s.retrying, owner)
		}
		s.mu.Unlock()
		if left <= 0 {
			s.refusals.wakes(owner)
			add(queueKey(owner))
			return
		}
		if !s.sleep(left) {
			return
		}
	}
}

// checkRetryAfter refuses an owner while the server asks to wait before a write of it is sent again. In ordinary times, in which no write has failed, it takes no lock.
func (s *Store) checkRetryAfter(owner types.NamespacedName) error {
	if s.refusals.owners.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.retrying[owner]
	if h == nil || !h.notBefore.After(time.Now()) {
		return nil
	}
	return &heldError{owner: owner, hold: *h}
}
