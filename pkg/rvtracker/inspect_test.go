// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// sourceInfo is the state of one registered store.
type sourceInfo struct {
	Resource schema.GroupResource
	StoreRV  string
	// Blocked is why no owner may trust the store now, or "".
	Blocked why
	Records int
	Hooked  bool
}

// infos returns every registered store, sorted by resource.
func (t *Tracker) infos() []sourceInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	sources := slices.Clone(t.sources)
	slices.SortStableFunc(sources, bySource)
	out := make([]sourceInfo, 0, len(sources))
	for _, s := range sources {
		info := sourceInfo{Resource: s.resource, StoreRV: s.pos().String(), Records: s.records, Hooked: s.hooked}
		if !s.usable() {
			info.Blocked, _, _ = s.why(nil)
		}
		out = append(out, info)
	}
	return out
}

// waiting returns every parked owner, sorted by controller, owner and resource.
func (t *Tracker) waiting() []Wait {
	var out []Wait
	for _, c := range t.controllers {
		c.EachWaiting(func(time.Time) bool { return true }, func(w Wait) { out = append(out, w) })
	}
	slices.SortFunc(out, func(a, b Wait) int {
		return cmp.Or(
			cmp.Compare(a.Controller, b.Controller),
			cmp.Compare(a.Owner.Namespace, b.Owner.Namespace),
			cmp.Compare(a.Owner.Name, b.Owner.Name),
			compareResource(a.Resource, b.Resource),
		)
	})
	return out
}

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
	b.c.EachWaiting(func(time.Time) bool {
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
		require.Equal(t, "10", w.awaitedRV)
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

func TestRecorded(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("5")
	require.Zero(t, b.tracker.Recorded())
	b.c.WroteAt(dsA, "u", pods, "10")
	b.c.WroteAt(dsA, "u", pods, "11")
	require.Equal(t, 1, b.tracker.Recorded())
	b.c.WroteAt(types.NamespacedName{Namespace: "ns", Name: "other"}, "u", pods, "12")
	require.Equal(t, 2, b.tracker.Recorded())
	b.pods.apply("11")
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, 1, b.tracker.Recorded())
	b.c.Clear(types.NamespacedName{Namespace: "ns", Name: "other"}, "u")
	require.Zero(t, b.tracker.Recorded())
}
