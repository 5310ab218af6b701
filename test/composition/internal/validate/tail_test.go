// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"testing"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// TestTail shows by what p99 ours is worse, and that neither owners that a fault touches count, nor one slow time.
func TestTail(t *testing.T) {
	healthy := schedule.Schedule{Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner"}}}
	touched := healthy
	touched.Steps = []schedule.Step{{Action: schedule.Late, Target: "pods", Delay: time.Second, For: time.Second}}
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
		schedule schedule.Schedule
		n, slow  int
		took     time.Duration
		worse    bool
	}{
		"as long as is allowed": {healthy, 300, 300, time.Second + moreTail, false},
		"longer":                {healthy, 300, 300, time.Second + moreTail + time.Millisecond, true},
		"3 of 300":              {healthy, 300, 3, time.Minute, false},
		"4 of 300":              {healthy, 300, 4, time.Minute, true},
		"1 of 30":               {healthy, 30, 1, time.Minute, false},
		"2 of 30":               {healthy, 30, 2, time.Minute, true},
		"1 of 100":              {healthy, 100, 1, time.Minute, false},
		"2 of 100":              {healthy, 100, 2, time.Minute, true},
		"too few":               {healthy, leastOfTail - 1, 10, time.Minute, false},
		"a fault":               {touched, 300, 300, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tail Tail
			tail.Add(c.schedule, record(c.n, 0, 0), record(c.n, c.slow, c.took))
			if few := c.n < leastOfTail || len(c.schedule.Steps) > 0; tail.Judged() == few {
				t.Errorf("judged: %t", !few)
			}
			if found := tail.Judge(); (len(found) > 0) != c.worse {
				t.Errorf("%v, want some: %t", found, c.worse)
			}
		})
	}
}
