// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// 150,000 owners wait, and each line of the log takes a millisecond: reporting, and later abandoning them, holds up no
// write of another owner.
func TestASlowLogHoldsUpNobody(t *testing.T) {
	owners := 150_000
	if testing.Short() {
		owners = 15_000
	}
	b := newBench(t, Options{})
	var lines atomic.Int32
	b.tracker.logger = funcr.New(func(string, string) {
		lines.Add(1)
		time.Sleep(time.Millisecond)
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
	}{{"reported", time.Minute, 11}, {"abandoned", 5 * time.Minute, 22}} {
		name := tc.name
		b.clock.Step(tc.after)
		lines.Store(0)
		done := make(chan struct{})
		go func() {
			b.tracker.tick()
			b.tracker.tell()
			close(done)
		}()
		// The longest of many, so that one falls into the time when the lock is held.
		var longest time.Duration
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			began := time.Now()
			b.c.WroteAt(dsA, "u", sets, "7")
			longest = max(longest, time.Since(began))
			if longest > time.Second {
				t.Fatalf("%s: a write of another owner waited for %s, after %d lines", name, longest, lines.Load())
			}
		}
		t.Logf("%s: the longest write took %s, %d lines", name, longest, lines.Load())
		require.LessOrEqual(t, lines.Load(), tc.lines)
		require.Positive(t, lines.Load())
	}
	b.tracker.tick()
	b.pump()
	require.LessOrEqual(t, len(b.stale), 3*maxReports)
}
