// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// A relist and a rewind are no waits for own writes, and an owner is counted by what it waits for now.
func TestParkedOwnersAreCountedByReason(t *testing.T) {
	b := relistBench(t)
	counted := func(want map[string]int, why string) {
		t.Helper()
		b.pump()
		got := maps.Clone(b.metrics.parked)
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		require.Equal(t, want, got, why)
	}
	b.c.WroteAt(dsA, "u", pods, "150")
	requireNotReady(t, b.c.EnsureReady(dsA))
	counted(map[string]int{"daemonset own_writes": 1}, "its write")
	b.pods.relist("200", nil)
	counted(map[string]int{"daemonset relist": 1}, "the relist shows the write, and has the sets be proven")
	requireNotReady(t, b.c.EnsureReady(dsB))
	counted(map[string]int{"daemonset relist": 2}, "all owners wait")
	waits := b.tracker.waiting()
	require.Equal(t, "relist", waits[0].Reason(), "so says the list")
	due, _ := b.begun()
	b.answer(due, nil)
	counted(map[string]int{}, "proven")

	b.c.WroteAt(dsA, "u", sets, "95")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.sets.apply("80")
	counted(map[string]int{"daemonset own_writes": 1}, "the cache went back a moment ago")
	b.clock.Step(time.Second)
	b.tracker.tick()
	counted(map[string]int{"daemonset rewind": 1}, "and is waited for")
	b.sets.apply("95")
	counted(map[string]int{}, "it is back")

	token := b.source(pods).BeginFence()
	require.Equal(t, findingRewind, b.source(pods).observeFence(token, "62"))
	requireNotReady(t, b.c.EnsureReady(dsA))
	counted(map[string]int{"daemonset rewind": 1}, "etcd was restored")
	b.c.Clear(dsA, "")
	counted(map[string]int{}, "it is gone")
	require.ElementsMatch(t, []types.NamespacedName{dsA, dsB, dsA, dsA}, b.woken)
}
