// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a server with ten objects and a store that has seen them, in a bubble.
type world struct {
	*testing.T
	api  *fakeAPI
	view *fakeView
	p    *Prover
}

func inWorld(t *testing.T, opts Options, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, api: &fakeAPI{rv: 100, bookmarkAt: 1700 * time.Millisecond}}
		for i := range 10 {
			w.api.write("ns/"+string(rune('a'+i)), "uid", false)
		}
		w.view = newView(w.api)
		w.view.sync(w.api.bump(0))
		opts.Config = serve(t, w.api)
		w.p = newProver(t, opts)
		w.p.Register(leases, w.view)
		test(w)
	})
}

func (w *world) prove(asOf time.Time) Proof {
	w.Helper()
	proof, err := w.p.Prove(w.Context(), leases, asOf)
	require.NoError(w, err)
	return proof
}

func TestFreshCache(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		asOf := time.Now()
		proof := w.prove(asOf)
		require.Equal(w, Proven, proof.Outcome, proof.String())
		require.Equal(w, MethodFence, proof.Method)
		require.Equal(w, "110", proof.ResourceVersion)
		require.Equal(w, 1, w.api.count(isFence))

		// What is proven costs nothing, also for earlier times.
		require.Equal(w, MethodEarlier, w.prove(asOf.Add(-time.Hour)).Method)
		require.Len(w, w.api.requests, 1)
	})
}

func TestQuietByList(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		proof := w.prove(time.Now())
		require.Equal(w, Proven, proof.Outcome, proof.String())
		require.Equal(w, MethodList, proof.Method)
		require.Equal(w, "110", proof.ResourceVersion)
	})
}

func TestQuietByWatch(t *testing.T) {
	inWorld(t, Options{SmallCollection: -1}, func(w *world) {
		w.api.bump(50)
		proof := w.prove(time.Now())
		require.Equal(w, Proven, proof.Outcome, proof.String())
		require.Equal(w, MethodWatch, proof.Method)
		require.Equal(w, "110", proof.ResourceVersion)
	})
}
