// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"maps"
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
