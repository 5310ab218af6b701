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

// lastResend reports whether client-go would return the error of a write that was put off so many times in a row before.
func lastResend(before int) bool { return before%resends == resends-1 }

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
// owner for so long, and until its turn; then it comes back to the queue, and its controller decides again.
func (s *Store) RetryAfter(owner types.NamespacedName, what transport.Write, after time.Duration) transport.PutOff {
	asked, turn, due, last := s.putsOff(owner, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.retrying[owner]
	comesBack := h != nil && !h.asked.IsZero() // It is one of several that the server has refused together.
	if !comesBack {
		h = &hold{reason: stalenessz.ForAction, resource: what.Resource, since: time.Now(), failed: true}
		s.retrying[owner] = h
	}
	h.asked, h.notBefore, h.due, h.resyncs = later(h.asked, asked), later(h.notBefore, turn), later(h.due, due), s.resyncs(last)
	if !comesBack {
		go s.comeBackAsAsked(owner, h)
	}
	return transport.PutOff{After: time.Until(h.due), Last: last}
}

// putsOff notes that a write of the owner is decided again, for which the server asks to wait so long. It returns until when that is, when the owner has its turn, and when it is due if
// nothing wants it before. On stock, after ten times, the delay of the queue comes in between; each time that is twice as long. So that the write is tried no more often than there, the owner is
// due no sooner than after the last of these delays. last says that the client would not have sent the write again.
func (s *Store) putsOff(owner types.NamespacedName, after time.Duration) (asked, turn, due time.Time, last bool) {
	before, tries, another := s.refusals.putsOff(owner)
	asked, last = time.Now().Add(min(after, longestPause)), lastResend(before)
	if another {
		return asked, asked, asked, last
	}
	workers := 5 // By default (--concurrent-replicaset-syncs and others).
	if s.name == daemonSetStore {
		workers = 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	turn = s.turns.next(asked, after, workers)
	due = turn
	if rounds := before / resends; rounds > 0 {
		due = later(due, time.Now().Add(s.retryDelay(tries+rounds-1)))
	}
	return asked, turn, due, last
}

// resyncs reports whether the reconcile in which the server puts a write off is made once more at once: not for the last time that the client would have sent it. Job does not do that.
func (s *Store) resyncs(last bool) bool { return !last && s.name != jobStore }

// endTurns has all owners come back as soon as the server does not ask them to wait any more: it accepts again what it has put off.
func (s *Store) endTurns() {
	s.mu.Lock()
	s.turns.last = time.Time{}
	for _, h := range s.retrying {
		h.notBefore, h.due = h.asked, h.asked
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

// comeBackAsAsked has the owner come back when it is due. If another write has failed besides, the queue has the owner come back for that one, and
// it would be tried more often than on stock: so the owner is left to the queue, for as long as that may take.
func (s *Store) comeBackAsAsked(owner types.NamespacedName, h *hold) {
	if !s.sleepAsAsked(owner, h) {
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

// sleepAsAsked returns when the owner is due, and whether it waits still.
func (s *Store) sleepAsAsked(owner types.NamespacedName, h *hold) bool {
	for {
		s.mu.Lock()
		if s.retrying[owner] != h {
			s.mu.Unlock()
			return false // It is gone, or was reconciled.
		}
		left := time.Until(h.notBefore)
		if left <= 0 {
			left = time.Until(h.due) // Something may have wanted it meanwhile.
		}
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

// checkRetryAfter refuses an owner while the server asks to wait before a write of it is sent again, and until its turn. It is due then. In ordinary times, in which no write has failed, it
// takes no lock.
func (s *Store) checkRetryAfter(owner types.NamespacedName) error {
	if s.refusals.owners.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.retrying[owner]
	switch {
	case h == nil || h.asked.IsZero():
		return nil
	case h.notBefore.After(time.Now()):
		if !h.resyncs {
			h.due = h.notBefore
		}
		h.resyncs = false
		return &heldError{owner: owner, hold: *h}
	}
	delete(s.retrying, owner)
	return nil
}

// askedToWait returns an error while the server asks to wait before a write of the owner is decided again, also one of which nobody knows what became of it.
func (s *Store) askedToWait(owner types.NamespacedName) error {
	s.mu.Lock()
	h := s.retrying[owner]
	if h != nil && h.notBefore.After(time.Now()) {
		defer s.mu.Unlock()
		return &heldError{owner: owner, hold: *h}
	}
	s.mu.Unlock()
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

// checkPutOff refuses a write of a reconcile that goes on after one of another kind which the server has put off. On stock it comes after that one, which the client sends again meanwhile, so
// ours would be sent more often. So it comes each time that the client would have given up. A status costs one request, if it has changed.
func (s *Store) checkPutOff(owner types.NamespacedName, what transport.Write) error {
	if putOff, ok := s.refusals.putOffWrite(owner); !ok || putOff == what || what.Subresource == "status" {
		return nil
	}
	return s.askedToWait(owner)
}
