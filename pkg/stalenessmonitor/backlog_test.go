// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBacklog(t *testing.T) {
	start := time.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	deliver := func(d *Delivery, rv int) { d.Bookmark(strconv.Itoa(rv)) }
	for name, test := range map[string]struct {
		// stored and delivered are the RVs at each second.
		stored, delivered []int
		lag               int
		stalled           bool
	}{
		"not synced":            {[]int{5, 5, 5}, []int{0, 0, 0}, 2, false},
		"level":                 {[]int{5, 6, 7}, []int{5, 6, 7}, 0, false},
		"behind by less":        {[]int{5, 6, 9}, []int{5, 6, 7}, 0, false},
		"behind":                {[]int{5, 6, 7, 8}, []int{5, 5, 6, 6}, 1, false},
		"stands still":          {[]int{5, 6, 7, 8, 9, 10, 11}, []int{5, 5, 5, 5, 5, 5, 5}, 5, true},
		"late and moves":        {[]int{5, 6, 7, 8, 9, 10, 11}, []int{1, 1, 2, 3, 4, 5, 6}, 4, false},
		"caught up":             {[]int{5, 6, 7, 8, 8}, []int{5, 5, 5, 5, 8}, 0, false},
		"quiet for long":        {[]int{5, 5, 5, 5, 5, 5, 5}, []int{5, 5, 5, 5, 5, 5, 5}, 0, false},
		"one change after":      {[]int{5, 5, 5, 5, 5, 5, 9}, []int{5, 5, 5, 5, 5, 5, 5}, 0, false},
		"restored":              {[]int{50, 50, 7, 7}, []int{50, 50, 50, 7}, 0, false},
		"restored, then behind": {[]int{50, 7, 8, 9}, []int{50, 7, 7, 7}, 1, false},
		"restored while behind": {[]int{5, 50, 60, 7, 7}, []int{5, 5, 5, 5, 7}, 0, false},
		"ahead of the sample":   {[]int{5, 6, 7}, []int{5, 6, 9}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b backlog
			d, level := NewDelivery("slow"), NewDelivery("level")
			for i, stored := range test.stored {
				deliver(d, test.delivered[i])
				deliver(level, stored)
				b.sample(uint64(stored), []*Delivery{level, d}, at(i))
			}
			got := b.handlers([]*Delivery{level, d}, at(len(test.stored)-1))
			require.Len(t, got, 2)
			var slow Handler
			for _, h := range got {
				if h.Name == "slow" {
					slow = h
				} else {
					require.Zero(t, h.Lag, "one does not stand for another")
				}
			}
			require.Equal(t, time.Duration(test.lag)*time.Second, slow.Lag)
			require.Equal(t, test.stalled, slow.Stalled)
			if test.lag > 0 {
				require.Equal(t, "slow", got[0].Name, "what needs a look comes first")
			}
		})
	}
}

// The handlers of one package are one series, that of the slowest.
func TestHandlersOfOnePackage(t *testing.T) {
	var b backlog
	now := time.Now()
	deliveries := []*Delivery{NewDelivery("a"), NewDelivery("a"), NewDelivery("b")}
	for _, d := range []*Delivery{deliveries[0], deliveries[2]} {
		d.Bookmark("9")
	}
	b.sample(9, deliveries, now)
	got := b.handlers(deliveries, now.Add(time.Minute))
	require.Equal(t, []Handler{{Name: "a", Lag: time.Minute, Stalled: true}, {Name: "b", Delivered: "9"}}, got)
	b.sample(9, nil, now)
	require.Empty(t, b.marks, "nothing is kept for handlers that are gone")
	require.Empty(t, b.seen)
}

// What is kept does not grow with the time that a handler stands still, and the lag stays true.
func TestBacklogIsBounded(t *testing.T) {
	var b backlog
	start := time.Now()
	d := []*Delivery{NewDelivery("stuck")}
	d[0].Bookmark("1")
	const seconds = 100_000
	for i := range seconds {
		b.sample(uint64(i+1), d, start.Add(time.Duration(i)*time.Second))
		require.LessOrEqual(t, len(b.marks), keptMarks)
	}
	end := start.Add(seconds * time.Second)
	require.Equal(t, end.Sub(start.Add(time.Second)), b.lag(1, end), "from when it fell behind")
	for _, handed := range []int{seconds / 4, seconds / 2, 3 * seconds / 4} {
		d[0].Bookmark(fmt.Sprint(handed))
		require.InEpsilon(t, (seconds-handed)*int(time.Second), int(b.lag(d[0].Position(), end)), 0.05)
	}
}
