// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// 150,000 owners wait: reporting, and later abandoning them, logs little, and never with the lock held, which would hold up the
// writes of all others.
func TestASlowLogHoldsUpNobody(t *testing.T) {
	owners := 150_000
	if testing.Short() {
		owners = 15_000
	}
	b := newBench(t, Options{})
	var lines atomic.Int32
	b.tracker.logger = funcr.New(func(string, string) {
		lines.Add(1)
		if assert.True(t, b.tracker.mu.TryLock(), "a line is logged with the tracker's lock held") {
			b.tracker.mu.Unlock()
		}
	}, funcr.Options{})
	b.pods.apply("5")
	for i := range owners {
		owner := types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)}
		b.c.WroteAt(owner, "u", pods, "10")
		_ = b.c.EnsureReady(owner)
	}
	for _, tc := range []struct {
		name  string
		after time.Duration
		lines int32
	}{{"reported", time.Minute, 1}, {"abandoned", 5 * time.Minute, 11}} {
		b.clock.Step(tc.after)
		lines.Store(0)
		b.tracker.tick()
		b.tracker.makeNotes()
		require.LessOrEqual(t, lines.Load(), tc.lines, tc.name)
		require.Positive(t, lines.Load())
	}
	b.tracker.tick()
	b.pump()
	require.LessOrEqual(t, len(b.stale), 3*maxReports)
	require.Len(t, slices.DeleteFunc(b.stale, func(w Wait) bool { return w.Further }), loggedOwners, "the log names them, by Options.OnStale")
}
