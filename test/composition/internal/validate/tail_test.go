// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"testing"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// TestTail shows by what p99 ours is worse, and that neither owners that a fault touches count, nor one slow history.
func TestTail(t *testing.T) {
	healthy := schedule.Schedule{Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner"}}}
	touched := healthy
	touched.Steps = []schedule.Step{{Action: schedule.Late, Target: "pods", Delay: time.Second, For: time.Second}}
	// record is of one history, in which n times were taken. So many of them are slow.
	record := func(n, slow int, took time.Duration) Record {
		spans := make([]Span, n)
		for i := range spans {
			spans[i].For = time.Second
			if i < slow {
				spans[i].For = took
			}
		}
		return Record{Untold: map[model.Owner][]Span{Owners(healthy)[0]: spans}}
	}
	for name, c := range map[string]struct {
		schedule                 schedule.Schedule
		histories, n, late, slow int // late histories have so many slow ones of their n
		took                     time.Duration
		worse                    bool
	}{
		"as long as is allowed": {healthy, 3, 100, 3, 100, time.Second + moreTail, false},
		"longer":                {healthy, 3, 100, 3, 100, time.Second + moreTail + time.Millisecond, true},
		"a few of 500":          {healthy, 100, 5, 5, 1, time.Minute, false},
		"some more of 500":      {healthy, 100, 5, 6, 1, time.Minute, true},
		"one history of 10":     {healthy, 10, 3, 1, 3, time.Minute, false},
		"two histories of 10":   {healthy, 10, 3, 2, 1, time.Minute, true},
		"one history":           {healthy, 1, 300, 1, 300, time.Minute, false},
		"too few":               {healthy, leastOfTail - 1, 1, 10, 1, time.Minute, false},
		"a fault":               {touched, 3, 100, 3, 100, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tail Tail
			for i := range c.histories {
				slow := 0
				if i < c.late {
					slow = c.slow
				}
				tail.Add(c.schedule, record(c.n, 0, 0), record(c.n, slow, c.took))
			}
			if few := c.histories*c.n < leastOfTail || len(c.schedule.Steps) > 0; tail.Judged() == few {
				t.Errorf("judged: %t", !few)
			}
			if found := tail.Judge(); (len(found) > 0) != c.worse {
				t.Errorf("%v, want some: %t", found, c.worse)
			}
		})
	}
}
