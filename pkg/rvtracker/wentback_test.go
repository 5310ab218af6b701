// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// An apiserver that lags by no more than a bookmark answers a relist: nothing is missing, and no event comes that brings the cache back to where it was. A proof ends the wait, and one
// that began before the cache went back once more does not.
func TestACacheThatWentBackIsProven(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{rv: "100"}, Prover: noProver{}})
	b.pods.apply("100")
	b.pods.apply("99")
	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyRegressed, e.Why)
	due, _ := b.begun()
	require.Empty(t, due, "resource versions may have gone backward")
	b.safety(0)
	due, resources := b.begun()
	require.Equal(t, []schema.GroupResource{pods}, resources)
	b.answer(due, ErrStale)
	requireNotReady(t, b.c.EnsureReady(dsA))
	due, _ = b.begun()
	require.Empty(t, due, "it has just been asked for")

	b.clock.Step(backEvery)
	due, _ = b.begun()
	b.pods.apply("98")
	b.answer(due, nil)
	requireNotReady(t, b.c.EnsureReady(dsA))

	b.clock.Step(backEvery)
	b.safety(0)
	due, resources = b.begun()
	require.Equal(t, []schema.GroupResource{pods}, resources)
	b.answer(due, nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	due, _ = b.begun()
	require.Empty(t, due)
}
