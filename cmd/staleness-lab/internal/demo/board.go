// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// board knows what is going on in each run; every change wakes who draws.
type board struct {
	begin   time.Time
	changed chan struct{}

	mu   sync.Mutex
	runs []run
}

// run is one story on one arm.
type run struct {
	story      string
	arm        controlplane.Arm
	what       string
	details    string    // change too often for a pipe
	begin, end time.Time // zero before
}

func newBoard(plan Plan) *board {
	b := &board{begin: time.Now(), changed: make(chan struct{}, 1)}
	for _, s := range plan.Stories {
		for _, arm := range plan.Arms {
			b.runs = append(b.runs, run{story: s.ID, arm: arm, what: "waiting its turn"})
		}
	}
	return b
}

func (b *board) start(story string, arm controlplane.Arm) {
	b.change(story, arm, func(r *run) { r.begin = time.Now() })
}

func (b *board) say(story string, arm controlplane.Arm, what, details string) {
	b.change(story, arm, func(r *run) { r.what, r.details = what, details })
}

func (b *board) end(story string, arm controlplane.Arm, what string) {
	b.change(story, arm, func(r *run) { r.what, r.details, r.end = what, "", time.Now() })
}

func (b *board) change(story string, arm controlplane.Arm, f func(*run)) {
	b.mu.Lock()
	for i := range b.runs {
		if b.runs[i].story == story && b.runs[i].arm == arm {
			f(&b.runs[i])
		}
	}
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *board) snapshot() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	return view{at: time.Now(), begin: b.begin, runs: slices.Clone(b.runs)}
}

// view is the board at one moment.
type view struct {
	at, begin time.Time
	runs      []run
}

var _ display.View = view{}

// Lines shows one line for each run.
func (v view) Lines(int) []display.Line {
	done := 0
	rows := [][]string{{"STORY", "ARM", "TIME", "NOW"}}
	for _, r := range v.runs {
		clock := "-"
		switch {
		case !r.end.IsZero():
			done++
			clock = display.Clock(r.end.Sub(r.begin))
		case !r.begin.IsZero():
			clock = display.Clock(v.at.Sub(r.begin))
		}
		now := r.what
		if r.details != "" {
			now += ": " + r.details
		}
		rows = append(rows, []string{r.story, string(r.arm), clock, now})
	}
	lines := []display.Line{
		{Text: fmt.Sprintf("Staleness demo: %d of %d runs done, %s", done, len(v.runs), display.Clock(v.at.Sub(v.begin))), Style: display.Bold},
		{},
	}
	for i, row := range display.Table(rows) {
		style := display.Normal
		switch {
		case i == 0, v.runs[i-1].begin.IsZero():
			style = display.Faint
		}
		lines = append(lines, display.Line{Text: row, Style: style})
	}
	return lines
}

// Facts says what began and what became of it.
func (v view) Facts() []display.Fact {
	var facts []display.Fact
	for _, r := range v.runs {
		if !r.begin.IsZero() {
			name := r.story + " " + string(r.arm)
			facts = append(facts, display.Fact{Key: name, Text: fmt.Sprintf("story %s on %s: %s", r.story, r.arm, r.what)})
		}
	}
	return facts
}
