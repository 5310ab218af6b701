// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

const (
	// firstPause and longestPause are for how long an owner of which writes fail is not woken without a proof. It doubles with each reconcile in
	// a row that had one, as the delay of a queue does, and up to the longest delay of one: a shorter pause has what fails tried more often than stock does.
	firstPause   = time.Second
	longestPause = 1000 * time.Second
	// longestActionPause is the longest pause of an action that has failed though it was proven: no proof can end that one early.
	longestActionPause = 5 * time.Minute
	// goesOnAfter is for how long a CronJob waits before it is read from the server: patience of its controller.
	goesOnAfter = 2 * time.Second
	// reconciling is for how long it may be unknown what a reconcile asks for.
	reconciling = 5 * time.Second
	// comebackAfter is how much longer than writes of an owner have failed it is not tried until it comes back.
	comebackAfter = 10 * time.Second
	// givenUpAfter is how many reconciles in a row fail until a queue that gives up does: those of Deployments, Endpoints and ServiceCIDRs try again 15 times
	// (maxRetries of upstream's pkg/controller/deployment/deployment_controller.go).
	givenUpAfter = 16
)

// refusals are the owners of which writes fail. The queue's backoff has these tried again: an action that is put off must not
// have them tried more often. The zero value is empty. All methods may be called concurrently.
type refusals struct {
	owners atomic.Int32 // zero in ordinary times, in which a reconcile takes no lock
	mu     sync.Mutex
	of     map[types.NamespacedName]*refusal
	// reconciles counts those of all these owners.
	reconciles int
}

type refusal struct {
	uid    types.UID       // of the owner, as far as it is known
	what   transport.Write // the last write that failed, or an action that did, even if another write failed after it
	first  time.Time       // when the first of those in a row failed
	from   time.Time       // when the first failed since a write as that which failed last has succeeded
	at     time.Time       // when the last one did
	tries  int             // reconciles in a row with a write that failed, before the last one; those that did no more than put an action off do not count
	since  int             // of these tries, those since a write as that which failed last has succeeded
	queued int             // tries, and reconciles whose failed write was made after all: what the queue counts
	began  time.Time       // the last one
	failed bool            // it has had a write that failed
	fails  int             // how many, but for those that were made after all, as the client has sent them again
	again  int             // so many of these, the last ones, were of one kind
	last   transport.Write // which one
	putOff int             // so many are decided again when the server asks for it, so the queue knows nothing of them
	waited int             // reconciles in a row that had such a write, before the last one
	waits  time.Time       // when the first of these had
	goesOn bool            // the rest of the reconcile has its turn after such a write
	status span            // from when to when its status has failed beside such a write; zero if it has not
	asked  bool            // it has put an action off
	mended bool            // a write as that which failed has succeeded after it, perhaps in the reconcile before
	looked time.Time       // the first reconcile since a write failed, zero if there was none
	number int             // what reconciles was when the last one began, so that another one can be told from it
	woken  int             // how many reconciles to come its action has caused: one, and another one if a queue, which has a key twice at most, was told of it twice
	caused bool            // its action has caused the last reconcile
}

// span is a time from its first moment to its last.
type span struct{ first, last time.Time }

// note notes that a write for the owner has failed.
func (r *refusals) note(owner types.NamespacedName, what transport.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of[owner]
	if of == nil {
		if r.of == nil {
			r.of = map[types.NamespacedName]*refusal{}
		}
		of = &refusal{first: time.Now(), asked: true, number: r.reconciles} // It may have put an action off before the write.
		r.of[owner] = of
		r.owners.Add(1)
	}
	now := time.Now()
	if what.Subresource == "status" && of.putOff > 0 { // The write that was put off before it is what decides when the owner comes back.
		if of.status.last = now; of.status.first.IsZero() {
			of.status.first = now
		}
		of.fails++
		return
	}
	if !of.failed || isAction(what) || !isAction(of.what) {
		of.what = what
	}
	if of.mended || of.from.IsZero() {
		of.from = now
	}
	if of.last != what {
		of.last, of.again = what, 0
	}
	of.fails, of.again = of.fails+1, of.again+1
	of.at, of.failed, of.mended, of.looked = now, true, false, time.Time{}
}

// putOffs is what is known of an owner of which the server puts a write off.
type putOffs struct {
	uid     types.UID
	what    transport.Write
	before  int           // so many reconciles in a row have had such a write before
	since   time.Duration // the first of them
	tries   int           // so many before have failed otherwise
	another bool          // it is not the first such write of the reconcile
	paused  bool          // its status is not to be tried yet
}

// putsOff notes that the write of the owner that has failed last is decided again when the server asks for it.
func (r *refusals) putsOff(owner types.NamespacedName) (is putOffs) {
	r.with(owner, func(of *refusal) {
		if of.waited == 0 && of.putOff == 0 {
			of.waits = time.Now()
		}
		of.putOff, of.again = of.putOff+1, max(of.again-1, 0)
		is = putOffs{uid: of.uid, what: of.what, before: of.waited, since: time.Since(of.waits), tries: of.tries, another: of.putOff > 1, paused: of.pausesStatus()}
	})
	return is
}

// goesOn notes that the rest of the owner's reconcile has its turn though a write of it is put off.
func (r *refusals) goesOn(owner types.NamespacedName) {
	r.with(owner, func(of *refusal) { of.goesOn = true })
}

// putOffWrite is the write of the owner's reconcile that is put off. ok is false if there is none, or if the rest of the reconcile has its turn.
func (r *refusals) putOffWrite(owner types.NamespacedName) (what transport.Write, ok bool) {
	r.with(owner, func(of *refusal) { what, ok = of.what, of.putOff > 0 && !of.goesOn })
	return what, ok
}

// statusBesides reports whether another write of the owner's reconcile is put off, and then whether its status is not to be tried before the rest of the reconcile has its turn: it has failed so before.
func (r *refusals) statusBesides(owner types.NamespacedName) (paused, is bool) {
	r.with(owner, func(of *refusal) {
		is = of.putOff > 0
		paused = is && !of.goesOn && !of.status.first.IsZero()
	})
	return paused, is
}

// pausesStatus reports whether the owner's status has failed beside a write that was put off, and not yet been as long without a try as it has failed.
func (of *refusal) pausesStatus() bool {
	return !of.status.first.IsZero() && time.Since(of.status.last) < of.status.last.Sub(of.status.first)+comebackAfter
}

// leftToQueue reports whether a write of the owner has failed in its last reconcile that is not decided again, so that the queue's backoff applies, and in how many before that one did. The
// number is another one as soon as the owner is reconciled again.
func (r *refusals) leftToQueue(owner types.NamespacedName) (number, tries int, does bool) {
	r.with(owner, func(of *refusal) { number, tries, does = of.number, of.tries, of.fails > of.putOff })
	return number, tries, does
}

// looks notes that the owner is to be reconciled, and waits if the store refuses it or puts an action of it off.
func (r *refusals) looks(owner types.NamespacedName) {
	r.with(owner, func(of *refusal) {
		if of.looked.IsZero() {
			of.looked = time.Now()
		}
	})
}

// wentOn reports whether the owner, of which a write has failed, does not wait to be woken, since its controller waits only briefly: then the queue's
// backoff has it tried again, or its controller goes on without the store.
func (r *refusals) wentOn(owner types.NamespacedName) (does bool) {
	r.with(owner, func(of *refusal) { does = of.looked.IsZero() || time.Since(of.looked) >= goesOnAfter })
	return does
}

// isAction reports whether a write may be one that needs a proof: a deletion, or an update such as a scale-down. Patches are of finalizers and labels.
func isAction(what transport.Write) bool {
	return what.Method == http.MethodDelete || what.Method == http.MethodPut && what.Subresource != "status"
}

// done notes that a write for the owner has succeeded. It reports whether it is one that was put off before.
func (r *refusals) done(owner types.NamespacedName, what transport.Write) (wasPutOff bool) {
	r.with(owner, func(of *refusal) {
		if of.last == what {
			of.fails, of.again = of.fails-of.again, 0
		}
		if of.what == what {
			wasPutOff = of.waited > 0 || of.putOff > 0
			of.mended, of.since, of.waited = true, 0, 0
		}
	})
	return wasPutOff
}

// begin notes that a reconcile begins. If no write failed in the last one, the owner is as any other, unless that one could do no more than put its
// action off. A reconcile whose failed write was made after all counts as no try, but ends nothing: of many writes of one kind another may fail each time.
func (r *refusals) begin(owner types.NamespacedName) {
	r.with(owner, func(of *refusal) {
		r.reconciles++
		if of.putOff > 0 {
			of.waited++
		} else if of.failed {
			of.waited = 0
		}
		switch {
		case of.putOff > 0 && of.putOff >= of.fails: // The queue does not count it.
		case of.failed:
			of.queued++
			if !of.mended {
				of.tries++
				of.since++
			}
		case !of.asked || of.mended || time.Since(of.at) >= 2*longestPause:
			r.remove(owner)
			return
		}
		of.caused = of.woken > 0 || of.caused && !of.failed // One that did no more than put the action off is made again, see UnprovenError.Again.
		of.woken = max(of.woken-1, 0)
		of.mended = of.failed && of.mended
		of.began, of.failed, of.asked, of.fails, of.again, of.putOff, of.goesOn = time.Now(), false, false, 0, 0, 0, false
		of.number = r.reconciles
	})
}

// reads notes which object a reconcile has read. The failures of another one of its name do not matter for it.
func (r *refusals) reads(owner types.NamespacedName, uid types.UID) {
	r.with(owner, func(of *refusal) {
		if of.uid != "" && of.uid != uid {
			r.remove(owner)
			return
		}
		of.uid = uid
	})
}

// refuses reports whether a write of the owner's reconcile has failed.
func (r *refusals) refuses(owner types.NamespacedName) (does bool) {
	r.with(owner, func(of *refusal) { does = of.failed })
	return does
}

// open reports whether a write of the owner's reconcile has failed, and none like it has succeeded since.
func (r *refusals) open(owner types.NamespacedName) (is bool) {
	r.with(owner, func(of *refusal) { is = of.failed && !of.mended })
	return is
}

// wakes notes that the owner's action wakes it.
func (r *refusals) wakes(owner types.NamespacedName) {
	r.with(owner, func(of *refusal) { of.woken = min(of.woken+1, 2) })
}

// dropped reports whether writes of the owner have failed in so many reconciles in a row that a queue that gives up drops it, and whether the store has caused the last one.
func (r *refusals) dropped(owner types.NamespacedName) (is, caused bool) {
	r.with(owner, func(of *refusal) { is, caused = of.failed && of.queued >= givenUpAfter-1, of.caused })
	return is, caused
}

// overdue reports whether a queue's delay for the owner is far longer than its writes have failed: each try doubles it, also one that an event causes.
func (r *refusals) overdue(owner types.NamespacedName) (is bool) {
	r.with(owner, func(of *refusal) { is = of.failed && queueDelay(of.queued) > 2*of.at.Sub(of.from)+comebackAfter })
	return is
}

// comeback is after how long without a try the owner, of which writes fail, comes back: as long as they have failed, and no later than a queue would have it tried, had it not
// given it up.
func (r *refusals) comeback(owner types.NamespacedName) (after time.Duration) {
	r.with(owner, func(of *refusal) { after = min(of.at.Sub(of.from)+comebackAfter, queueDelay(of.queued)) })
	return after
}

// failures is how many reconciles of the owner in a row had a write that failed, before the last one, since one like it has succeeded.
func (r *refusals) failures(owner types.NamespacedName) (n int) {
	r.with(owner, func(of *refusal) { n = of.since })
	return n
}

// failing is the resource of the owner's write that has failed.
func (r *refusals) failing(owner types.NamespacedName) (resource schema.GroupResource) {
	r.with(owner, func(of *refusal) { resource = of.what.Resource })
	return resource
}

// asks notes that the reconcile puts an action off.
func (r *refusals) asks(owner types.NamespacedName) {
	r.with(owner, func(of *refusal) { of.asked = true })
}

// with calls f with what is known of an owner of which writes fail, and the mutex held.
func (r *refusals) with(owner types.NamespacedName, f func(of *refusal)) {
	if r.owners.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.of[owner]; of != nil {
		f(of)
	}
}

// forget forgets an owner.
func (r *refusals) forget(owner types.NamespacedName) {
	r.with(owner, func(*refusal) { r.remove(owner) })
}

// remove forgets an owner. The mutex is held.
func (r *refusals) remove(owner types.NamespacedName) {
	delete(r.of, owner)
	r.owners.Add(-1)
}

// pause reports whether a put-off action that has waited since then must not wake the owner yet.
func (r *refusals) pause(owner types.NamespacedName, since time.Time) (paused bool) {
	r.with(owner, func(of *refusal) {
		if of.mended && !of.failed || !of.asked && time.Since(of.began) >= reconciling {
			return
		}
		paused = time.Since(since) < of.pause()
	})
	return paused
}

// pause is for how long the owner is not woken after so many tries.
func (of *refusal) pause() time.Duration { return min(firstPause<<min(of.tries, 20), longestPause) }

// pauseAction is for how long the owner's action, which itself has failed, must not be tried again yet though it is proven: for no longer than writes have failed,
// as each delay of a queue is as long as all before it together. Some controllers tell their queue that nothing failed when all that is left to do waits for a proof,
// so that the queue's backoff begins anew.
func (r *refusals) pauseAction(owner types.NamespacedName) (left time.Duration) {
	r.with(owner, func(of *refusal) {
		if isAction(of.what) && !of.mended {
			left = time.Until(of.at.Add(min(max(of.at.Sub(of.first), firstPause), of.pause(), longestActionPause)))
		}
	})
	return left
}

// actionFails reports whether the last write of the owner that failed is an action. The number is another one as soon as the owner is reconciled again.
func (r *refusals) actionFails(owner types.NamespacedName) (number int, fails bool) {
	r.with(owner, func(of *refusal) { number, fails = of.number, isAction(of.what) && !of.mended })
	return number, fails
}

// wakeAgain is wakeAction for an owner whose action needs no more than that the owner is read again. If a try of the action has failed, the owner is left to the reconcile
// that follows at once (see UnprovenError.Again) and to the queue's backoff after it: woken besides, it would try again without any pause. Where no reconcile follows, as of a Job,
// whose controller does not call consistency.Sync, it is woken after the pause.
func (s *Store) wakeAgain(owner types.NamespacedName) {
	s.refusals.asks(owner)
	before, fails := s.refusals.actionFails(owner)
	if !fails {
		s.wakeAction(owner)
		return
	}
	go func() {
		if !s.sleep(max(firstPause, s.refusals.pauseAction(owner))) {
			return
		}
		if now, still := s.refusals.actionFails(owner); still && now == before {
			s.wakeAction(owner)
		}
	}()
}

// Failed notes that a write for the owner was refused, or that its outcome is unknown.
func (s *Store) Failed(owner types.NamespacedName, what transport.Write) {
	if what.Subresource == "status" && !s.refusals.refuses(owner) { // Otherwise the owner comes back for the write that was refused before.
		s.retryStatus(owner)
	}
	s.refusals.note(owner, what)
	if cached, _ := s.cached(owner); cached != nil {
		s.refusals.reads(owner, cached.GetUID())
	}
	if s.backsOff() && s.refusals.overdue(owner) {
		s.comeBackFailing(owner)
	}
}

// Leaves implements what consistency.Leaves asks for: a queue that gives up would begin anew each time that the store wakes an owner in vain. The wait for
// a proof has it tried again, or, if it is the action that has failed, the end of its pause, or else its comeback. An owner that the queue drops comes back, too.
// After a reconcile that did not fail, as it put off the action that has failed before, the queue is not to forget the failures: the action would be tried as often again each time.
func (s *Store) Leaves(key string, failed bool) bool {
	object, err := cache.ParseObjectName(key)
	owner := types.NamespacedName(object)
	if !failed {
		_, fails := s.refusals.actionFails(owner)
		return err == nil && fails && s.held.actionOf(owner) != nil
	}
	dropped, caused := s.refusals.dropped(owner)
	if err != nil || !dropped {
		return false
	}
	if !caused || s.held.actionOf(owner) == nil && !s.retryAction(owner) {
		s.comeBackFailing(owner)
	}
	return caused
}

// retryAction has the owner come back when its action, which has failed though it was proven, may be tried again. It reports whether it does.
func (s *Store) retryAction(owner types.NamespacedName) bool {
	left := s.refusals.pauseAction(owner)
	if left <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retrying[owner] != nil {
		return true
	}
	h := &hold{reason: stalenessz.ForAction, resource: s.refusals.failing(owner), since: time.Now(), failed: true}
	s.retrying[owner] = h
	go func() {
		if !s.sleep(left) {
			return
		}
		s.mu.Lock()
		waits := s.retrying[owner] == h // Else it is gone.
		if waits {
			delete(s.retrying, owner)
		}
		s.mu.Unlock()
		if waits {
			s.wakeAction(owner)
		}
	}()
	return true
}

// outlast waits, while writes for the owner fail, or one that failed is ignored, or another pass comes anyhow, until the cache is proven, keeps lagging, or the owner may be tried again.
func (s *Store) outlast(owner types.NamespacedName, r *putOff, since time.Time) {
	for (s.refusals.pause(owner, since) || s.ignored(owner, r) || s.passes(r)) && s.ctx.Err() == nil {
		proof := s.prover.Prove(s.ctx, r.resource, s.asOf(owner, r.resource, time.Now(), ProofAge))
		if proof.Fresh() || s.keepsLagging(r) {
			return
		}
		s.prover.Wait(s.ctx, r.resource, proof)
	}
}

// passes reports whether the action is one of passes, and waits still. A look at all objects in between would be for that action alone, and do all else once more.
func (s *Store) passes(r *putOff) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.period > 0 && !r.forgotten
}

// keepsLagging reports whether the action may go on though its cache was stale each time, as caughtUp says.
func (s *Store) keepsLagging(r *putOff) bool {
	s.mu.Lock()
	waits, wanted := r.wanted[r.wants]
	since := waits.since
	late := s.period > 0 || time.Since(since) >= lagLimit
	s.mu.Unlock()
	if !wanted || !late {
		return false
	}
	known, ok := s.prover.Known(r.resource)
	return ok && !known.At.Before(since)
}

// outlastFailure waits, while the owner's action itself fails, or a write of the value's object, until it may be tried again, and reports whether it had to.
func (s *Store) outlastFailure(owner types.NamespacedName, r *putOff, proven bool) (had bool) {
	for {
		left := s.pauses(owner, r)
		if proven {
			left = max(left, s.refusals.pauseAction(owner))
		}
		if left <= 0 || s.ctx.Err() != nil {
			return had
		}
		had = true
		s.held.change(func() { r.failed = true })
		s.sleep(min(left, firstPause))
	}
}
