// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// However many owners wait, the lock is held for some of them at a time.
func TestInspectionHoldsTheLockBriefly(t *testing.T) {
	owners := 150_000
	if testing.Short() {
		owners = 15_000
	}
	b := newBench(t, Options{})
	b.pods.apply("5")
	name := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("owner", i)}
	}
	for i := range owners {
		b.c.WroteAt(name(i), "u", pods, "10")
		requireNotReady(t, b.c.EnsureReady(name(i)))
	}
	var inOneHold, most, visited, asked int
	var took, longest time.Duration
	began := time.Now()
	b.tracker.EachWaiting(func(time.Time) bool {
		if inOneHold == 0 {
			began = time.Now()
		}
		inOneHold, asked = inOneHold+1, asked+1
		most, took = max(most, inOneHold), time.Since(began)
		return asked%3 == 0
	}, func(w Wait) {
		longest, inOneHold = max(longest, took), 0
		require.True(t, b.tracker.mu.TryLock(), "visited without the lock")
		b.tracker.mu.Unlock()
		require.Equal(t, "10", w.AwaitedRV)
		if visited++; visited == 1 { // Owners go while others are looked at.
			b.c.Clear(name(0), "u")
			b.c.Clear(name(1), "u")
		}
	})
	t.Logf("longest hold %v", longest)
	require.InDelta(t, owners, asked, 2)
	require.Equal(t, asked/3, visited)
	require.LessOrEqual(t, most, 2*inspectedAtOnce)
}
