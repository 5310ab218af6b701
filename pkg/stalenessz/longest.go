// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"container/heap"
	"slices"
	"time"
)

// MaxRows is how many rows each table of the page has.
const MaxRows = 1000

// Longest keeps the MaxRows waits that have lasted longest, and counts them all.
type Longest struct {
	rows  youngestFirst
	total int
	// controllers are those that wait, or may.
	controllers map[string]*Tally
	// rowless has no row be kept: only the tallies are of interest.
	rowless bool
}

// Of returns the tally of a controller. One of which nothing waits is known from then on, too.
func (l *Longest) Of(controller string) *Tally {
	t := l.controllers[controller]
	if t == nil {
		if l.controllers == nil {
			l.controllers = map[string]*Tally{}
		}
		t = &Tally{all: l}
		l.controllers[controller] = t
	}
	return t
}

// Tally counts what waits of one controller.
type Tally struct {
	all *Longest
	// object and action are when the longest wait of an object and of a disruptive action began. Zero: none waits.
	object, action time.Time
}

// Wants counts an object that is not reconciled, and says whether its wait is one of the longest so far: then it is to be
// handed to Longest.Add. It is cheap.
func (t *Tally) Wants(since time.Time) bool { return t.wants(&t.object, since) }

// WantsAction does what Wants does, for a disruptive action that is put off.
func (t *Tally) WantsAction(since time.Time) bool { return t.wants(&t.action, since) }

func (t *Tally) wants(oldest *time.Time, since time.Time) bool {
	l := t.all
	l.total++
	if oldest.IsZero() || since.Before(*oldest) {
		*oldest = since
	}
	return !l.rowless && (len(l.rows) < MaxRows || since.Before(l.rows[0].Since))
}

// Add keeps a wait that Wants or WantsAction has said yes to, as long as it is one of the longest.
func (l *Longest) Add(w Wait) {
	if heap.Push(&l.rows, w); len(l.rows) > MaxRows {
		heap.Pop(&l.rows)
	}
}

// Rows are the waits that have lasted longest, these first.
func (l *Longest) Rows() []Wait {
	rows := slices.Clone(l.rows)
	slices.SortStableFunc(rows, func(a, b Wait) int { return a.Since.Compare(b.Since) })
	return rows
}

// Total is how many there are.
func (l *Longest) Total() int { return l.total }

// youngestFirst is a heap.
type youngestFirst []Wait

func (h youngestFirst) Len() int           { return len(h) }
func (h youngestFirst) Less(i, j int) bool { return h[i].Since.After(h[j].Since) }
func (h youngestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *youngestFirst) Push(w any)        { *h = append(*h, w.(Wait)) }

func (h *youngestFirst) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = Wait{}
	*h = (*h)[:last]
	return w
}
