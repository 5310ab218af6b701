// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// deleteCheck is one look at the store, made without the tracker's lock.
type deleteCheck struct {
	src  *Source
	rec  *record
	key  types.NamespacedName
	uid  types.UID
	pos  version // of the store before the look
	gone bool
}

func (o *owner) hasDeletes() bool {
	found := false
	o.each(func(r *record) { found = found || r.hasDeletes() })
	return found
}

func (o *owner) deleteChecks(checks []deleteCheck) []deleteCheck {
	o.each(func(r *record) { checks = r.deleteChecks(checks) })
	return checks
}

// deleteChecks leaves out records whose RV has not been reached: an object that
// the store has not seen created is absent without being gone.
func (r *record) deleteChecks(checks []deleteCheck) []deleteCheck {
	if !r.hasDeletes() || r.idx >= 0 || !r.src.usable() {
		return checks
	}
	pos := r.src.pos()
	for _, d := range r.extra.deletes {
		checks = append(checks, deleteCheck{src: r.src, rec: r, key: d.key, uid: d.uid, pos: pos})
	}
	return checks
}

func lookUp(checks []deleteCheck) {
	for i := range checks {
		checks[i].gone = !checks[i].src.holdsAlive(checks[i].key, checks[i].uid)
	}
}

// holdsAlive is true if the store cannot answer: a fence decides then.
func (s *Source) holdsAlive(key types.NamespacedName, uid types.UID) bool {
	k := key.Name
	if key.Namespace != "" {
		k = key.Namespace + "/" + key.Name
	}
	item, exists, err := s.store.GetByKey(k)
	if err != nil {
		return true
	}
	if !exists {
		return false
	}
	m, err := meta.Accessor(item)
	if err != nil {
		return true
	}
	return m.GetUID() == uid && m.GetDeletionTimestamp() == nil
}

// applyDeletes removes the deletes whose objects are gone. It also removes those whose objects are alive in a store
// that has passed a fence begun after the delete: such a delete had no effect.
func (t *Tracker) applyDeletes(checks []deleteCheck, now time.Time) {
	for _, c := range checks {
		r := c.rec
		if r.src != c.src || !c.src.usable() || !r.hasDeletes() {
			continue
		}
		deletes := r.extra.deletes
		for i, d := range deletes {
			if d.uid != c.uid {
				continue
			}
			undone := !c.gone && !d.fence.isZero() && !c.pos.less(d.fence)
			if undone {
				t.opts.Metrics.Dropped(r.owner.c.name, c.src.resource, outcomeUndone)
			}
			if c.gone || undone {
				deletes[i] = deletes[len(deletes)-1]
				deletes[len(deletes)-1] = pendingDelete{}
				r.extra.deletes = deletes[:len(deletes)-1]
			}
			break
		}
		t.leftSide(r, outcomeSeen, now)
	}
}

// leftSide releases a record that waits for nothing, or for its RV alone.
func (t *Tracker) leftSide(r *record, outcome string, now time.Time) {
	if r.hasDeletes() {
		return
	}
	s, o := r.src, r.owner
	if r.flags&flagSuspect == 0 {
		s.leaveSide(r)
		s.setGate()
	}
	if r.resolved() {
		o.release(r)
		t.finish(o, outcome, now)
	}
}
