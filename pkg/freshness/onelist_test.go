// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One list is fence and proof, and a change on its way does not count as missing.
func TestProveByList(t *testing.T) {
	for _, tc := range []struct {
		name    string
		late    time.Duration // of a change made just before
		outcome Outcome
	}{
		{name: "nothing happened", outcome: Proven},
		{name: "a change on its way", late: time.Second, outcome: Proven},
		{name: "a change that does not come", late: time.Hour, outcome: Stale},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				if tc.late > 0 {
					changed := w.api.write("ns/a", "uid", false)
					w.api.bump(5)
					timer := time.AfterFunc(tc.late, func() { w.view.follow(changed) })
					defer timer.Stop()
				}
				asOf := time.Now()
				proof, err := w.p.ProveByList(w.Context(), leases, asOf, 1500*time.Millisecond)
				require.NoError(w, err)
				require.Equal(w, tc.outcome, proof.Outcome, proof.String())
				require.Equal(w, 1, w.api.count(isList))
				require.Len(w, w.api.requests, 1)
				known, ok := w.p.Known(leases)
				require.Equal(w, tc.outcome == Proven, ok)
				if ok {
					require.False(w, known.At.Before(asOf))
				}
			})
		})
	}
}

func TestProveByListOfALargeCache(t *testing.T) {
	inWorld(t, Options{SmallCollection: 5}, func(w *world) {
		w.api.bump(50)
		proof, err := w.p.ProveByList(w.Context(), leases, time.Now(), time.Second)
		require.NoError(w, err)
		require.Equal(w, ReasonTooMany, proof.Reason)
		require.Empty(w, w.api.requests)
	})
}

// A bookmark that is behind the list takes nothing away from a cache whose content is that of the list. One that
// comes with an object that the list does not have does, and the proof does not come back with the content.
func TestAnUnchangedCacheMayMove(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		proof, err := w.p.ProveByList(w.Context(), leases, time.Now(), time.Second)
		require.NoError(w, err)
		require.True(w, proof.Exact)
		same := map[string]object{}
		for key, c := range stateAt(w.api.history, w.api.rv) {
			same[key] = object{c.uid, w.api.text(c.rv)}
		}
		for _, moved := range []int{120, 130} {
			w.view.set(w.api.text(moved), same)
			known, ok := w.p.Known(leases)
			require.True(w, ok, "at %d", moved)
			require.Equal(w, proof.At, known.At)
			require.Equal(w, w.api.text(moved), known.ResourceVersion)
		}
		more := map[string]object{"ns/short": {"s", w.api.text(135)}}
		maps.Copy(more, same)
		w.view.set(w.api.text(135), more)
		_, ok := w.p.Known(leases)
		require.False(w, ok, "the server had deleted it by then")
		w.view.set(w.api.text(136), same)
		_, ok = w.p.Known(leases)
		require.False(w, ok)
	})
}

// A cache that lacks what it has passed has lost it: a change at its own resource version, a deletion at that of an earlier list.
func TestProveByListOfACacheThatLostAnEvent(t *testing.T) {
	for _, tc := range []struct {
		name    string
		deleted bool
		first   bool // the first list shows it
		seen    bool // it was only late
	}{
		{name: "a deletion", deleted: true},
		{name: "a deletion that was late", deleted: true, seen: true},
		{name: "a change", first: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				lost := w.api.write("ns/a", "uid", tc.deleted)
				list := func() Proof {
					proof, err := w.p.ProveByList(w.Context(), leases, time.Now(), 100*time.Millisecond)
					require.NoError(w, err)
					return proof
				}
				// moves has the cache get a change after it, and not the lost one.
				moves := func() {
					w.view.set(w.api.text(w.api.write("ns/z", "uid", false)), lacking(w, lost))
				}
				if tc.first {
					moves()
					w.api.bump(5)
					require.True(w, list().Lost)
					return
				}
				proof := list()
				require.Equal(w, Stale, proof.Outcome)
				require.False(w, proof.Lost, "it may be on its way")
				if moves(); tc.seen {
					w.view.sync(w.api.rv)
					require.Equal(w, Proven, list().Outcome)
					w.api.write("ns/b", "uid", true)
					require.False(w, list().Lost, "another one may be on its way")
					return
				}
				w.api.bump(5)
				proof = list()
				require.Equal(w, Stale, proof.Outcome)
				require.True(w, proof.Lost)
			})
		})
	}
}

// lacking is what a cache has that got every change but one.
func lacking(w *world, lost int) map[string]object {
	history, _ := w.api.snapshot()
	history = slices.DeleteFunc(history, func(c change) bool { return c.rv == lost })
	out := map[string]object{}
	for key, c := range stateAt(history, w.api.rv) {
		out[key] = object{c.uid, w.api.text(c.rv)}
	}
	return out
}
