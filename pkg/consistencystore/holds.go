// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// Why owners wait, as the metric of parked owners counts them. An owner that puts off a disruptive action is not counted: the rest
// of its reconcile goes on. Those that wait for own writes, rewinds and relists are the tracker's.
const (
	holdStart     = metrics.ForStart
	holdUnsettled = metrics.ForUnsettled
	holdAction    = ""
)

// hold is what one owner waits for: that caches are proven as of a time.
type hold interface {
	// list hands over the rows of the page: one for each cache that is waited for.
	list(controller string, owner types.NamespacedName, out *stalenessz.Longest)
}

// holds are the owners of one controller that wait for proofs, by the reason. Its lock may be taken with any other lock of the
// package held, and no other is taken with it.
type holds struct {
	mu         sync.Mutex
	controller string
	owners     map[string]map[types.NamespacedName]hold
}

func newHolds(controller string) *holds {
	return &holds{controller: controller, owners: map[string]map[types.NamespacedName]hold{holdStart: {}, holdUnsettled: {}, holdAction: {}}}
}

// gate refuses an owner that a hold of the controller or of its own keeps from being reconciled.
func (s *Store) gate(owner types.NamespacedName) error {
	if s.start != nil {
		if err := s.start.check(owner); err != nil {
			return err
		}
	}
	if err := s.checkUnsettled(owner); err != nil {
		return err
	}
	return s.Controller.EnsureReady(owner)
}

// park notes that the owner waits, unless it does already for that reason.
func (l *holds) park(reason string, owner types.NamespacedName, h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, parked := l.owners[reason][owner]; !parked {
		l.owners[reason][owner] = h
		l.count(reason)
	}
}

// parked is the owner's hold for that reason, nil if there is none.
func (l *holds) parked(reason string, owner types.NamespacedName) hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owners[reason][owner]
}

// release forgets the owner's hold for that reason.
func (l *holds) release(reason string, owner types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owners[reason], owner)
	l.count(reason)
}

// releaseAll forgets the holds for that reason, and returns them.
func (l *holds) releaseAll(reason string) map[types.NamespacedName]hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.owners[reason]
	l.owners[reason] = map[types.NamespacedName]hold{}
	l.count(reason)
	return of
}

// count tells the metric of how many owners wait for that reason. mu must be held.
func (l *holds) count(reason string) {
	if reason != holdAction {
		metrics.Parked(l.controller, reason, len(l.owners[reason]))
	}
}

// lookedAtAtOnce is how many holds are looked at in one hold of the lock.
const lookedAtAtOnce = 256

// list hands over what all owners wait for. Owners that come or go meanwhile may be left out.
func (l *holds) list(out *stalenessz.Longest) {
	type parked struct {
		owner types.NamespacedName
		hold  hold
	}
	var found []parked
	flush := func() {
		l.mu.Unlock()
		for _, p := range found {
			p.hold.list(l.controller, p.owner, out)
		}
		clear(found)
		found = found[:0]
		l.mu.Lock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.owners {
		for owner, h := range of { // A range goes on over a map that has changed.
			if found = append(found, parked{owner, h}); len(found) >= lookedAtAtOnce {
				flush()
			}
		}
	}
	flush()
}
