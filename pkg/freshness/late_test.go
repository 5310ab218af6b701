// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where all that watches bring is late, or they end without a bookmark, a cache can be proven all the same.
func TestWatchesThatBringNothingInTime(t *testing.T) {
	for name, spoil := range map[string]func(*fakeAPI){
		"late":        func(a *fakeAPI) { a.late = 10 * time.Second },
		"no bookmark": func(a *fakeAPI) { a.bookmarkAt = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: 5}, func(w *world) {
				w.api.mu.Lock()
				spoil(w.api)
				w.api.mu.Unlock()
				w.api.bump(50)
				proof := w.prove(time.Now())
				require.Equal(w, Unknown, proof.Outcome)
				time.Sleep(proof.RetryAfter)
				w.requireProven(w.prove(time.Now()), methodList)

				// It is not listed again for each question.
				w.api.bump(1)
				time.Sleep(time.Millisecond)
				proof = w.prove(time.Now())
				w.requireUnknown(proof, ReasonTimeout)
				require.LessOrEqual(w, proof.RetryAfter, 10*listShare)
				time.Sleep(proof.RetryAfter)
				w.requireProven(w.prove(time.Now()), methodList)
				w.api.write("ns/new", "n", false)
				time.Sleep(time.Second)
				require.Equal(w, Stale, w.prove(time.Now()).Outcome)
				w.view.sync(w.api.bump(0))

				// Watches are tried again.
				w.api.mu.Lock()
				w.api.late, w.api.bookmarkAt = 0, 1700*time.Millisecond
				w.api.mu.Unlock()
				w.api.bump(1)
				time.Sleep(lateFor)
				w.requireProven(w.prove(time.Now()), methodWatch)
				w.api.bump(1)
				w.requireProven(w.prove(time.Now()), methodWatch)
			})
		})
	}
}

// A collection too large for a list is proven by a watch that is given more time.
func TestEventsOfALargeCollectionAreLate(t *testing.T) {
	inWorld(t, Options{SmallCollection: -1}, func(w *world) {
		w.api.mu.Lock()
		w.api.late = 25 * time.Second
		w.api.mu.Unlock()
		w.api.bump(50)
		began := time.Now()
		for {
			asked := time.Now()
			proof := w.prove(asked)
			if proof.Fresh() {
				require.Less(w, time.Since(asked), 30*time.Second)
				break
			}
			w.requireUnknown(proof, ReasonTimeout)
			time.Sleep(proof.RetryAfter)
		}
		require.Less(w, time.Since(began), 2*time.Minute)
		w.api.bump(1)
		w.requireProven(w.prove(time.Now()), methodWatch)

		w.api.mu.Lock()
		w.api.late = 0
		w.api.mu.Unlock()
		w.api.bump(1)
		w.requireProven(w.prove(time.Now()), methodWatch)
		require.Equal(w, watchSlack, w.p.resource(leases).slack(), "the time for a watch is the usual again")
	})
}
