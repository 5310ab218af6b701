// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// jobStore is the controller of Jobs.
const jobStore = "job"

// Redecides implements transport.Store, for deletions and a Deployment's changes of its ReplicaSets. A pod of a Job loses its finalizer before it is deleted, and is not counted any more from
// then on: the patch that takes it off is decided again, and the deletion is not. A CronJob, whose controller waits only briefly, and an autoscaler, which reads from the server what it changes, are left to client-go.
func (s *Store) Redecides(what transport.Write) bool {
	s.mu.Lock()
	parks := s.add != nil
	s.mu.Unlock()
	switch {
	case s.prover == nil || !parks || s.brief || s.name == autoscaler || what.Subresource != "":
		return false
	case s.name == jobStore:
		return what.Method == http.MethodPatch
	case s.name == deploymentStore && what.Method == http.MethodPut:
		return what.Resource.Resource == "replicasets"
	}
	return what.Method == http.MethodDelete
}

// RetryAfter implements transport.Store: client-go would send the write again, ten times, beneath the controller, whatever has changed meanwhile. In place of that EnsureReady refuses the
// owner for so long, and for longestPause at most; then it comes back to the queue, and its controller decides again.
func (s *Store) RetryAfter(owner types.NamespacedName, what transport.Write, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, at := time.Now(), time.Now().Add(min(after, longestPause))
	waits := s.retrying[owner]
	if waits != nil && !waits.notBefore.Before(at) {
		return
	}
	if waits != nil {
		since = waits.since
	}
	s.retrying[owner] = &hold{reason: stalenessz.ForAction, resource: what.Resource, since: since, notBefore: at, failed: true}
	if waits == nil || waits.notBefore.IsZero() { // Else it is one of several that the server has refused together.
		go s.comeBackAsAsked(owner)
	}
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
