// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// restore brings the server back to an earlier RV.
func (a *fakeAPI) restore(rv int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.history) > 0 && a.history[len(a.history)-1].rv > rv {
		a.history = a.history[:len(a.history)-1]
	}
	a.rv = rv
}

func TestRewind(t *testing.T) {
	for _, tc := range []struct {
		name  string
		small int
		to    int // the server restored, from 160
		since int // changes to other resources before anybody asks
		// after the rewind was found: what the store does, and what is said then
		then   func(w *world)
		want   Outcome
		method Method
		reason Reason
	}{
		{name: "the store keeps the old history", to: 105, want: Unknown, reason: ReasonRewind},
		{name: "the same, large", small: -1, to: 105, want: Unknown, reason: ReasonRewind},
		{
			name: "the store is relisted", small: -1, to: 105,
			then: func(w *world) { w.view.sync(w.api.bump(0)) },
			want: Proven, method: methodFence,
		}, {
			name: "the store is relisted, and stale again", small: -1, to: 105,
			then: func(w *world) {
				w.view.sync(w.api.bump(0))
				w.api.write("ns/a", "uid", false)
			},
			want: Stale, method: methodWatch,
		}, {
			name: "the server outruns the store, which goes on without going back", small: -1, to: 105,
			then: func(w *world) { w.api.bump(200) },
			want: Unknown, reason: ReasonRewind,
		}, {
			name: "the same, small: the list shows the difference", to: 105,
			then: func(w *world) { w.api.bump(200) },
			want: Unknown, reason: ReasonRewind,
		}, {
			name: "nothing of the store was lost, the list shows it", to: 120,
			want: Proven, method: methodList,
		}, {
			name: "the store is below the fence, but of the old history", to: 105, since: 10,
			then: func(w *world) { w.api.write("ns/j", "uid", false) },
			want: Unknown, reason: ReasonRewind,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &counted{}
			opts := Options{SmallCollection: tc.small, Metrics: m}
			inWorld(t, opts, func(w *world) {
				if tc.small < 0 {
					w.p.opts.SmallCollection = 3 // less than there are
				}
				w.api.bump(50)
				before := time.Now()
				require.True(w, w.prove(before).Fresh())
				time.Sleep(time.Second)
				w.api.restore(tc.to)
				w.api.bump(tc.since)
				w.takeFence()
				require.Equal(w, 1, m.rewinds)
				if tc.then != nil {
					tc.then(w)
				}
				time.Sleep(time.Second)
				proof := w.prove(time.Now())
				require.Equal(w, tc.want, proof.Outcome, proof.String())
				require.Equal(w, tc.reason, proof.Reason)
				require.Equal(w, tc.method, proof.Method)
				if proof = w.prove(before); proof.Fresh() {
					require.True(w, proof.At.After(before), "earlier proofs are void")
				}
				require.Equal(w, 1, m.rewinds)
			})
		})
	}
}

func TestRewindFoundByTheStoresRV(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.restore(105)
		w.requireUnknown(w.prove(time.Now()), ReasonRewind)
		w.view.sync(105)
		time.Sleep(time.Second)
		require.True(w, w.prove(time.Now()).Fresh())
	})
}

func TestRewindFoundByAFedFence(t *testing.T) {
	for name, f := range map[string]Fence{
		"below an earlier fence":     {ResourceVersion: "109"},
		"below the store's RV told":  {ResourceVersion: "109", StoreRV: "110"},
		"below an RV that is longer": {ResourceVersion: "99"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &counted{}
			inWorld(t, Options{Metrics: m}, func(w *world) {
				if f.StoreRV == "" {
					require.True(w, w.prove(time.Now()).Fresh())
				}
				time.Sleep(time.Second)
				f.TakenAt = time.Now()
				w.p.AddFence(w.Context(), leases, f)
				require.Equal(w, 1, m.rewinds)
			})
		})
	}
}

func TestOverlappingFencesAreNoRewind(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{Metrics: m}, func(w *world) {
		sent := time.Now()
		time.Sleep(time.Second)
		require.True(w, w.prove(time.Now()).Fresh())
		// Sent before the other's answer was known, so it may well be lower.
		w.p.AddFence(w.Context(), leases, Fence{ResourceVersion: "104", TakenAt: sent})
		require.Zero(w, m.rewinds)
		require.True(w, w.prove(sent).Fresh())
	})
}

func TestRewindUnderAFence(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		// Its answer is of the old server, and comes when the rewind is known.
		old := Fence{ResourceVersion: "110", TakenAt: time.Now()}
		time.Sleep(time.Second)
		require.True(w, w.prove(time.Now()).Fresh())
		w.api.restore(105)
		time.Sleep(time.Second)
		_, err := w.p.Fence(w.Context(), leases)
		require.NoError(w, err)
		w.p.AddFence(w.Context(), leases, old)
		time.Sleep(time.Second)
		w.requireUnknown(w.prove(old.TakenAt), ReasonRewind)
	})
}

// The bookmark that ends a proof by watch is past the fence: a restore to between the two was not seen, and the proof
// held for what the new history has there.
func TestRewindToBelowABookmark(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{SmallCollection: -1, Metrics: m}, func(w *world) {
		w.api.bump(50) // 160
		time.AfterFunc(time.Second, func() { w.api.bump(20) })
		w.requireProven(w.prove(time.Now()), methodWatch)
		w.api.restore(170)
		fence := w.takeFence()
		require.Equal(w, 1, m.rewinds)
		w.api.write("ns/a", "uid", false)
		w.requireUnknown(w.prove(fence.TakenAt), ReasonRewind)
	})
}

func TestRewindDuringAProof(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		before := w.takeFence()
		w.api.restore(105)
		after := w.takeFence()
		w.view.sync(105)
		w.p.Known(leases)
		r := w.p.resource(leases)
		require.False(w, r.settled(quiet{base: "105", upTo: "180"}, before), "it is of the history that is gone")
		require.True(w, r.settled(quiet{base: "105", upTo: "105"}, after))
	})
}
