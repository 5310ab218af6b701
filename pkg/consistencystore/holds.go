// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// hold has an owner of the controller, or all owners, wait until the cache of a resource is proven as of a time.
type hold struct {
	reason   string
	resource schema.GroupResource
	// asOf is the time that the proof must reach; zero: it is not known yet.
	asOf time.Time
	// since is when the wait began.
	since time.Time
	turn
	// proof is the last answer.
	proof freshness.Proof
	// handlers says that the cache is proven, and that event handlers, by what they keep, have not been told all of it.
	handlers bool
	// failed says that the last try failed: there is another one after a pause.
	failed bool
	// action, of a hold that puts off an action alone, is for its owner's next reconcile, which asks for the proof.
	action *putOff
}

// awaits says what has to happen.
func (h *hold) awaits() string {
	switch {
	case h.reason == stalenessz.ForStart:
		return "a proof that the caches are as new as the start of leadership"
	case h.reason == stalenessz.ForUnsettled:
		return "the outcome of a write whose answer was lost"
	case h.reason == stalenessz.ForUnseen:
		return "the cache to show its last write to this resource, before it writes to it again"
	case h.failed:
		return "its next try"
	}
	return "a proof that the cache is fresh"
}

// why says why that has not happened, by the last answer.
func (h *hold) why(proof freshness.Proof) string {
	early := time.Until(h.notBefore)
	switch {
	case early > 0 && h.notBefore.After(h.asked):
		return fmt.Sprintf("the server asks to wait, and other objects have their turn first: the next try is in %s", early.Round(100*time.Millisecond))
	case early > 0:
		return fmt.Sprintf("the server asks to wait for another %s", early.Round(100*time.Millisecond))
	case h.asOf.IsZero() && h.reason == stalenessz.ForUnsettled:
		return "the leader lease was not renewed since"
	case h.failed:
		return "the last try failed; the pause between tries grows"
	case h.handlers:
		return "the cache is fresh, but its event handlers have not been told all that it has"
	case h.reason == stalenessz.ForUnseen:
		return "events of the resource are late"
	case proof.Outcome == "":
		return "the cache is being proven"
	}
	return proof.String()
}

// heldError says for what an owner waits that must not be reconciled.
type heldError struct {
	owner types.NamespacedName
	hold
}

func (e *heldError) Error() string {
	return fmt.Sprintf("%s waits for %s (%s, for %s): %s", e.owner, e.awaits(), e.resource, time.Since(e.since).Round(time.Millisecond), e.why(e.proof))
}

// Parked implements what consistency.Parked asks for.
func (e *heldError) Parked() bool { return true }

// holds are the owners of one controller that wait for proofs, by reason, with a hold for each cache for which one waits. Its lock may be
// taken while any other lock of the package is held, except that of answers. A hold that is in it changes only under its lock.
type holds struct {
	controller string
	// all has all owners wait; nil: nothing does.
	all atomic.Pointer[hold]

	mu     sync.Mutex
	owners map[string]map[types.NamespacedName][]*hold
}

func newHolds(controller string) *holds {
	return &holds{controller: controller, owners: map[string]map[types.NamespacedName][]*hold{stalenessz.ForStart: {}, stalenessz.ForUnsettled: {}, stalenessz.ForUnseen: {}, stalenessz.ForAction: {}}}
}

// gate refuses an owner if a hold of all owners, or its own, keeps it from being reconciled.
func (s *Store) gate(owner types.NamespacedName) error {
	if err := s.held.refuse(owner); err != nil {
		return err
	}
	if err := s.checkRetryAfter(owner); err != nil {
		return err
	}
	if err := s.checkUnsettled(owner); err != nil {
		return err
	}
	return s.checkOwnWrites(owner)
}

// checkOwnWrites refuses an owner until the caches show what was written and deleted for it. One that was made again under the name of another waits for no writes of
// that but those for which it waits on stock: there the controllers of Deployments and CronJobs wait for none, and the others for no deletion.
func (s *Store) checkOwnWrites(owner types.NamespacedName) error {
	err := s.Controller.EnsureReady(owner)
	var wait *rvtracker.NotReadyError
	if !errors.As(err, &wait) || wait.OwnerUID == "" || !wait.Deletes() && s.name != deploymentStore && s.name != cronJob {
		return err
	}
	cached, _ := s.cached(owner)
	if cached == nil || cached.GetUID() == wait.OwnerUID || !wait.Precedes(cached.GetResourceVersion()) {
		return err
	}
	s.Controller.Clear(owner, wait.OwnerUID)
	return s.Controller.EnsureReady(owner)
}

// refuse parks an owner if all owners wait.
func (l *holds) refuse(owner types.NamespacedName) error {
	if l.all.Load() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all.Load()
	if all == nil {
		return nil
	}
	if l.owners[all.reason][owner] == nil {
		l.park(owner, &hold{reason: all.reason, since: time.Now()})
	}
	return &heldError{owner: owner, hold: *all}
}

// releaseAll ends the hold of all owners, and returns the owners that were parked.
func (l *holds) releaseAll() map[types.NamespacedName][]*hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := l.all.Swap(nil).reason
	parked := l.owners[reason]
	l.owners[reason] = map[types.NamespacedName][]*hold{}
	l.count(reason)
	return parked
}

// park adds a hold of the owner. mu must be held.
func (l *holds) park(owner types.NamespacedName, h *hold) {
	l.owners[h.reason][owner] = append(l.owners[h.reason][owner], h)
	l.count(h.reason)
}

// release ends the owner's hold for that reason on that resource. mu must be held.
func (l *holds) release(reason string, owner types.NamespacedName, resource schema.GroupResource) {
	of := l.owners[reason]
	if of[owner] = slices.DeleteFunc(of[owner], func(h *hold) bool { return h.resource == resource }); len(of[owner]) == 0 {
		delete(of, owner)
	}
	l.count(reason)
}

// actionOf is the owner's action that is put off, nil if there is none.
func (l *holds) actionOf(owner types.NamespacedName) *putOff {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.owners[stalenessz.ForAction][owner] {
		return h.action
	}
	return nil
}

// forget has a wait leave nothing behind. The store's mu must be held.
func (l *holds) forget(r *putOff) { l.change(func() { r.forgotten = true }) }

// change calls f with mu held.
func (l *holds) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// count sets the metric of how many owners wait for that reason. mu must be held.
func (l *holds) count(reason string) {
	if reason != stalenessz.ForAction && reason != stalenessz.ForUnseen {
		metrics.Parked(l.controller, reason, len(l.owners[reason]))
	}
}

// lookedAtAtOnce is how many owners each looks at before it gives up the lock for a moment.
const lookedAtAtOnce = 256

// each calls f, with mu held, for all holds. Owners that come or go meanwhile may be left out.
func (l *holds) each(f func(types.NamespacedName, *hold)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	looked := 0
	for _, of := range l.owners {
		for owner, holds := range of { // A range over a map goes on when the map changes.
			for _, h := range holds {
				if all := l.all.Load(); all != nil && all.reason == h.reason {
					h.resource, h.proof = all.resource, all.proof
				}
				f(owner, h)
			}
			if looked++; looked%lookedAtAtOnce == 0 {
				l.mu.Unlock() // For others to get the lock.
				l.mu.Lock()
			}
		}
	}
}
