// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "context"

const (
	// maxNotes bounds the notes that wait.
	maxNotes = 1000
	// maxReports is how many owners of a controller are reported in one tick, and loggedOwners how many owners the log names
	// of many to which the same happens at once.
	maxReports   = 100
	loggedOwners = 10
)

// note has f called without the lock, on a goroutine that does nothing else, because a log or Options.OnStale may
// take long. The lock must be held.
func (t *Tracker) note(f func()) {
	if len(t.notes) >= maxNotes {
		t.notesLost++
		return
	}
	t.notes = append(t.notes, f)
	select {
	case t.noteCh <- struct{}{}:
	default:
	}
}

// info logs by a note.
func (t *Tracker) info(msg string, keysAndValues ...any) {
	logger := t.logger
	t.note(func() { logger.Info(msg, keysAndValues...) })
}

func (t *Tracker) runNotes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			t.makeNotes()
			return
		case <-t.noteCh:
			t.makeNotes()
		}
	}
}

// makeNotes makes the calls that were noted.
func (t *Tracker) makeNotes() {
	t.mu.Lock()
	notes, lost, logger := t.notes, t.notesLost, t.logger
	t.notes, t.notesLost = nil, 0
	t.mu.Unlock()
	for _, f := range notes {
		f()
	}
	if lost > 0 {
		logger.Info("Dropped log lines because the log is too slow", "lines", lost)
	}
}
