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

// jobStore is the controller of Jobs. The delay of its queue begins with firstPause, and is no longer than longestOfJobs (upstream's pkg/controller/job/job_controller.go).
const (
	jobStore      = "job"
	longestOfJobs = time.Minute
)

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

// resends is how often client-go sends a request in all before it returns the error.
const resends = 11

// turns are the times at which owners of a controller are tried of which the server puts writes off. On stock each of these keeps a worker busy, so as many at a time are tried as there are
// workers. As none does here, they would come back all at once, as often as the server allows each. The store's mu guards it.
type turns struct {
	last time.Time     // the latest that was given
	ends chan struct{} // closed when the server has accepted such a write again; nil: nobody waits for that
}

// next is a turn not before that time, so that there are no more turns than that many workers would have, each of which waits that long.
func (t *turns) next(at time.Time, after time.Duration, workers int) time.Time {
	if next := t.last.Add(after / time.Duration(workers)); next.After(at) {
		at = next
	}
	if latest := time.Now().Add(longestPause); at.After(latest) {
		at = latest
	}
	t.last = at
	return at
}

// RetryAfter implements transport.Store: client-go would send the write again, ten times, beneath the controller, whatever has changed meanwhile. In place of that EnsureReady refuses the
// owner for so long, or longer, see putsOff; then it comes back to the queue, and its controller decides again.
func (s *Store) RetryAfter(owner types.NamespacedName, what transport.Write, after time.Duration) time.Duration {
	asked, turn := s.putsOff(owner, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.retrying[owner]
	comesBack := h != nil && !h.notBefore.IsZero() // It is one of several that the server has refused together.
	if !comesBack {
		h = &hold{reason: stalenessz.ForAction, resource: what.Resource, since: time.Now(), failed: true}
		s.retrying[owner] = h
	}
	h.asked, h.notBefore = later(h.asked, asked), later(h.notBefore, turn)
	if !comesBack {
		go s.comeBackAsAsked(owner)
	}
	return time.Until(h.notBefore)
}

// putsOff notes that a write of the owner is decided again, for which the server asks to wait so long, and returns until when the owner has to wait, and when it is tried unless the server
// accepts such writes before. On stock, after ten times, the delay of the queue comes in between; each time that is twice as long. So that the write is tried no more often than there, the
// pause here is no shorter than the last of these delays would be.
func (s *Store) putsOff(owner types.NamespacedName, after time.Duration) (asked, turn time.Time) {
	before, another := s.refusals.putsOff(owner)
	pause := after
	if rounds := before / resends; rounds > 0 {
		pause = max(pause, s.retryDelay(rounds-1))
	}
	asked = time.Now().Add(min(pause, longestPause))
	if another {
		return asked, asked
	}
	workers := 5 // By default (--concurrent-replicaset-syncs and others).
	if s.name == daemonSetStore {
		workers = 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return asked, s.turns.next(asked, after, workers)
}

// endTurns has all owners come back as soon as the server does not ask them to wait any more: it accepts again what it has put off.
func (s *Store) endTurns() {
	s.mu.Lock()
	s.turns.last = time.Time{}
	for _, h := range s.retrying {
		if !h.notBefore.IsZero() {
			h.notBefore = h.asked
		}
	}
	if s.turns.ends != nil {
		close(s.turns.ends)
		s.turns.ends = nil
	}
	s.mu.Unlock()
	s.unsettled.endTurns(s.held)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retryDelay is what the controller's queue waits after a failure, and so many before it.
func (s *Store) retryDelay(failures int) time.Duration {
	if s.name == jobStore {
		return min(firstPause<<min(failures, 20), longestOfJobs)
	}
	return queueDelay(failures)
}

// comeBackAsAsked has the owner come back when the server does not ask to wait any more. If another write has failed besides, the queue has the owner come back for that one, and
// it would be tried more often than on stock: so the owner is left to the queue, for as long as that may take.
func (s *Store) comeBackAsAsked(owner types.NamespacedName) {
	if !s.sleepAsAsked(owner) {
		return
	}
	if number, tries, does := s.refusals.leftToQueue(owner); does {
		if !s.sleep(firstPause + s.retryDelay(tries)) {
			return
		}
		if now, _, still := s.refusals.leftToQueue(owner); !still || now != number {
			return // It came back.
		}
	}
	s.refusals.wakes(owner)
	s.mu.Lock()
	add := s.add
	s.mu.Unlock()
	add(queueKey(owner))
}

// sleepAsAsked returns when it is the owner's turn, and whether the owner is still there.
func (s *Store) sleepAsAsked(owner types.NamespacedName) bool {
	for {
		s.mu.Lock()
		h := s.retrying[owner]
		if h == nil || h.notBefore.IsZero() {
			s.mu.Unlock()
			return false
		}
		left := time.Until(h.notBefore)
		if left <= 0 {
			delete(s.retrying, owner)
			s.mu.Unlock()
			return true
		}
		if s.turns.ends == nil {
			s.turns.ends = make(chan struct{})
		}
		ends := s.turns.ends
		s.mu.Unlock()
		select {
		case <-time.After(left):
		case <-ends:
		case <-s.ctx.Done():
			return false
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

// askedToWait returns an error while the server asks to wait before a write of the owner is decided again, also one of which nobody knows what became of it.
func (s *Store) askedToWait(owner types.NamespacedName) error {
	if err := s.checkRetryAfter(owner); err != nil {
		return err
	}
	s.unsettled.mu.Lock()
	defer s.unsettled.mu.Unlock()
	o := s.unsettled.owners[owner]
	if o == nil || !o.notBefore.After(time.Now()) {
		return nil
	}
	for _, h := range o.lost {
		return &heldError{owner: owner, hold: *h}
	}
	return nil
}

// checkPutOff refuses a write of a reconcile that goes on after one which the server has put off. On stock it comes after that one, which the client sends again meanwhile, so ours would be
// sent more often. Writes of one kind are sent side by side there, but for those of a Deployment. A status costs one request, if it has changed.
func (s *Store) checkPutOff(owner types.NamespacedName, what transport.Write) error {
	if what.Subresource == "status" {
		return nil
	}
	if putOff, ok := s.refusals.putOffWrite(owner); !ok || putOff == what && s.name != deploymentStore {
		return nil
	}
	return s.askedToWait(owner)
}
