// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// jobStore is the controller of Jobs. The delay of its queue begins with firstPause, and is no longer than longestOfJobs (upstream's pkg/controller/job/job_controller.go).
const (
	jobStore      = "job"
	longestOfJobs = time.Minute
)

// Redecides implements transport.Store, for deletions, a Deployment's changes of its ReplicaSets, and its status where another write is put off: the client would keep it from those by sending the
// status again. A pod of a Job loses its finalizer before it is deleted, and is not counted any more from then on: the patch that takes it off is decided again, and the deletion is not. Nor is that of a DaemonSet's pod that has ended: nothing can make it outdated, and each time that the
// controller decides it, it waits twice as long before the next, up to 15 min. A CronJob, whose controller waits only briefly, and an autoscaler, which reads from the server what it changes,
// are left to client-go.
func (s *Store) Redecides(what transport.Write, object types.NamespacedName) bool {
	s.mu.Lock()
	parks := s.add != nil
	s.mu.Unlock()
	switch {
	case s.prover == nil || !parks || s.brief || s.name == autoscaler:
		return false
	case s.name == deploymentStore && what.Subresource == "status":
		_, besides := s.refusals.statusBesides(object)
		return besides
	case what.Subresource != "":
		return false
	case s.name == jobStore:
		return what.Method == http.MethodPatch
	case s.name == deploymentStore && what.Method == http.MethodPut:
		return what.Resource.Resource == "replicasets"
	case s.name == daemonSetStore && what.Resource == podResource:
		cached, _ := s.object(podResource, object)
		if pod, ok := cached.(*corev1.Pod); ok && podutil.IsPodTerminal(pod) {
			return false
		}
	}
	return what.Method == http.MethodDelete
}

// resends is how often client-go sends a request in all before it returns the error.
const resends = 11

// turn is when an owner has its turn of which the server puts a write off. The server asks to wait until asked, and other owners have their turn until notBefore. If nothing wants the owner
// before, it comes back when it is due.
type turn struct {
	asked, notBefore, due time.Time
	// resyncs says that the reconcile is made once more at once (consistency.Sync): that is nothing that wants the owner.
	resyncs bool
}

// and is the later of two turns: the server has refused several writes of one reconcile.
func (t turn) and(o turn) turn {
	return turn{later(t.asked, o.asked), later(t.notBefore, o.notBefore), later(t.due, o.due), o.resyncs}
}

// wanted has an owner that is to be reconciled come back at its turn, and reports whether that is sooner.
func (t *turn) wanted() (sooner bool) {
	if !t.resyncs {
		sooner, t.due = t.due.After(t.notBefore), t.notBefore
	}
	t.resyncs = false
	return sooner
}

// longer reports whether its owner waits for longer than the server asks.
func (t *turn) longer() bool { return t.due.After(t.asked) }

// ends has the owner come back as soon as the server does not ask to wait.
func (t *turn) ends() { t.notBefore, t.due = t.asked, t.asked }

// putOff is what the controller is told.
func (t *turn) putOff() transport.PutOff {
	return transport.PutOff{After: time.Until(t.due), GoesOn: !t.resyncs}
}

// turns are the times at which owners of a controller are tried of which the server puts writes off. On stock each of these keeps a worker busy, so as many at a time are tried as there are
// workers. As none does here, they would come back all at once, as often as the server allows each. The store's mu guards it.
type turns struct {
	last time.Time     // the latest that was given
	ends chan struct{} // closed when one of them has ended early; nil: nobody waits for that
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
	t := s.putsOff(owner, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.retrying[owner]
	comesBack := h != nil && !h.asked.IsZero() // It is one of several that the server has refused together.
	if !comesBack {
		h = &hold{reason: stalenessz.ForAction, resource: what.Resource, since: time.Now(), failed: true}
		s.retrying[owner] = h
	}
	h.turn = h.turn.and(t)
	if !comesBack {
		go s.comeBackAsAsked(owner, h)
	}
	return h.putOff()
}

// putsOff notes that a write of the owner is decided again, for which the server asks to wait so long.
//
// On stock, after ten times, the delay of the queue comes in between; each time that is twice as long. So that the write is tried no more often than there, the owner is due no sooner than
// after the last of these delays, but soon enough if the server recovers: after an eighth of the time for which it has waited. The rest of the reconcile has its turn, and an event tells of the write, as often as the client would
// have given up. A Deployment's asks for one write after the other, so it ends otherwise.
func (s *Store) putsOff(owner types.NamespacedName, after time.Duration) turn {
	is, now := s.refusals.putsOff(owner), time.Now()
	var delay time.Duration
	if rounds := is.before / resends; rounds > 0 {
		delay = min(s.retryDelay(is.tries+rounds-1), is.since/8)
	}
	givesUp := is.before%resends == resends-1
	if givesUp && !is.another {
		s.reports.putOffByServer(s.name, owner, is.uid, is.what, resends)
	}
	goesOn := givesUp || delay >= resends*after && !is.paused
	if goesOn {
		s.refusals.goesOn(owner)
	}
	t := turn{asked: now.Add(min(after, longestPause)), resyncs: s.name == deploymentStore && !goesOn}
	t.ends()
	if is.another {
		return t
	}
	workers := 5 // By default (--concurrent-replicaset-syncs and others).
	if s.name == daemonSetStore {
		workers = 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.notBefore = s.turns.next(t.asked, after, workers)
	t.due = later(t.notBefore, now.Add(delay))
	return t
}

// retryDelay is what the controller's queue waits after a failure, and so many before it.
func (s *Store) retryDelay(failures int) time.Duration {
	if s.name == jobStore {
		return min(firstPause<<min(failures, 20), longestOfJobs)
	}
	return queueDelay(failures)
}

// endTurn has one more owner come back as soon as the server does not ask it to wait any more: the server has accepted what it has put off, and on stock a worker goes on with the next owner then. If it
// accepts what that one writes, too, another one follows. So all come back where the server has recovered, and no more than it accepts where it accepts some.
func (s *Store) endTurn() {
	if s.unsettled.endTurn(s.held) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *hold
	for _, h := range s.retrying {
		if h.longer() && (first == nil || h.notBefore.Before(first.notBefore)) {
			first = h
		}
	}
	if first == nil {
		s.turns.last = time.Time{}
		return
	}
	first.ends()
	if s.turns.ends != nil {
		close(s.turns.ends)
		s.turns.ends = nil
	}
}

// comeBackAsAsked has the owner come back when it is due. If another write has failed besides, it would be tried more often than on stock, so the owner is left to its queue, for as long as
// that may take: where a controller tells its queue of one of two failures, the queue may know of none.
func (s *Store) comeBackAsAsked(owner types.NamespacedName, h *hold) {
	if !s.sleepUntilDue(owner, h) {
		return
	}
	if number, tries, does := s.refusals.leftToQueue(owner); does {
		if !s.sleep(firstPause + s.retryDelay(tries)) {
			return
		}
		if now, _, _ := s.refusals.leftToQueue(owner); now != number {
			return // It came back.
		}
	}
	s.refusals.wakes(owner)
	s.mu.Lock()
	add := s.add
	s.mu.Unlock()
	add(queueKey(owner))
}

// sleepUntilDue returns when the owner is due, and whether it waits still: it may be gone, or have been reconciled.
func (s *Store) sleepUntilDue(owner types.NamespacedName, h *hold) bool {
	for {
		s.mu.Lock()
		if s.retrying[owner] != h {
			s.mu.Unlock()
			return false
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
		h.wanted()
		return &heldError{owner: owner, hold: *h}
	}
	delete(s.retrying, owner)
	return nil
}

// checkPutOff refuses a write that comes in a reconcile after one of another kind which the server has put off, as on stock: there the client sends the first one again before the controller gets to
// the second. A status is sent all the same: it costs one request, if it has changed. Once it has failed, too, it has
// its turn with the rest of the reconcile.
func (s *Store) checkPutOff(owner types.NamespacedName, what transport.Write) error {
	putOff, ok := s.refusals.putOffWrite(owner)
	switch {
	case what.Subresource == "status":
		if paused, _ := s.refusals.statusBesides(owner); !paused {
			return nil
		}
	case !ok || putOff == what:
		return nil
	}
	return &heldError{owner: owner, hold: hold{reason: stalenessz.ForAction, resource: putOff.Resource, since: time.Now(), failed: true}}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
