// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// owner holds the records of one reconciled object for one controller. It lives
// only while it has records. The first record is inline: most owners have one.
type owner struct {
	c     *Controller
	name  types.NamespacedName
	uid   types.UID
	park  *parking // nil unless the owner waits to be woken
	chain *owner   // next of the same hash
	n     int32    // records in use
	hash  uint32   // in the controller's table
	first record
}

// parking is one wait of one owner, from the first refusal to the wake.
type parking struct {
	since    time.Time
	src      *Source // what the wait was first for: its metric label
	reason   reason  // by which it is counted
	stale    bool    // a fence has shown the store to be behind the server
	reported bool
}

// record is what one owner awaits of one source. It is in the line's heap until the source reaches
// its RV, and among the source's side records while it
// also depends on something besides the RV. A record without an owner is a
// waiter of Source.Wait.
type record struct {
	owner *owner
	src   *Source // nil: slot unused
	next  *record
	lo    uint64 // low word of the awaited RV; 0: only that the source is usable
	at    int64  // when the awaited RV was recorded, ns since the tracker was made
	extra *extra
	idx   int32  // index in the heap, -1 outside
	fseq  uint32 // number of fences begun before the last write was recorded
	flags uint8
}

const (
	// flagWrite: the record stands for a write (else for a source that is not usable).
	flagWrite = 1 << iota
	// flagLower: there is a write below the awaited RV, too: it may still exist after a rewind, or be of a newer epoch.
	flagLower
	// flagSuspect: a write below what the store had before it was sent; only a fence clears it.
	flagSuspect
	// flagForced: counted in line.force.
	flagForced
	// flagUnproven: the source has to be proven first (Controller.demands).
	flagUnproven
)

// extra is what few records need.
type extra struct {
	big     string // the awaited RV when it does not fit lo
	deletes []pendingDelete
	side    int // index in Source.side plus one, 0 outside
	line    *line
	fn      func(error)
}

type pendingDelete struct {
	key  types.NamespacedName
	uid  types.UID
	fseq uint32
	// proof is the RV of the first fence begun after the delete. A store that has
	// passed it and still holds the object shows that the delete did not happen.
	fence version
}

func (r *record) ext() *extra {
	if r.extra == nil {
		r.extra = &extra{}
	}
	return r.extra
}

func (r *record) awaited() version {
	if r.lo == bigLo {
		return version{lo: bigLo, big: r.extra.big}
	}
	return version{lo: r.lo}
}

func (r *record) setAwaited(v version) {
	r.lo = v.lo
	if v.lo == bigLo {
		r.ext().big = v.big
	} else if r.extra != nil {
		r.extra.big = ""
	}
}

func (r *record) hasDeletes() bool { return r.extra != nil && len(r.extra.deletes) > 0 }

// resolved says that the record waits for nothing, if the source is usable.
func (r *record) resolved() bool {
	return r.idx < 0 && r.flags&(flagSuspect|flagUnproven) == 0 && !r.hasDeletes()
}

// before says that the record's last write was recorded before the fence began.
func (r *record) before(seq uint32) bool { return int32(seq-r.fseq) > 0 }

func (d *pendingDelete) before(seq uint32) bool { return int32(seq-d.fseq) > 0 }

func (o *owner) find(s *Source) *record {
	for r := &o.first; r != nil; r = r.next {
		if r.src == s {
			return r
		}
	}
	return nil
}

// ensure returns the owner's record on s, and makes one that waits for nothing if there is none.
func (o *owner) ensure(s *Source) *record {
	if r := o.find(s); r != nil {
		return r
	}
	r := &o.first
	if r.src != nil {
		r = &record{next: o.first.next}
		o.first.next = r
	}
	next := r.next
	*r = record{owner: o, src: s, next: next, idx: -1}
	o.n++
	s.records++
	return r
}

// release removes r. The owner itself stays.
func (o *owner) release(r *record) {
	s := r.src
	s.leave(r)
	s.records--
	o.n--
	if r == &o.first {
		*r = record{next: r.next, idx: -1}
		return
	}
	for p := &o.first; p != nil; p = p.next {
		if p.next == r {
			p.next = r.next
			break
		}
	}
	r.src = nil
}

// waitsFor is the first source that the owner waits for.
func (o *owner) waitsFor() *Source {
	for r := &o.first; r != nil; r = r.next {
		if r.src != nil {
			return r.src
		}
	}
	return nil
}

// each calls f for every record in use; f may release the record.
func (o *owner) each(f func(*record)) {
	for r := &o.first; r != nil; {
		next := r.next
		if r.src != nil {
			f(r)
		}
		r = next
	}
}
