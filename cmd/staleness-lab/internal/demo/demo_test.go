// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/story"
)

type result struct {
	story.KCM
	figures []story.Figure
}

func (r result) Figures() []story.Figure { return r.figures }

func TestReport(t *testing.T) {
	plan := Plan{
		Stories: []story.Story{{
			ID: "a", Title: "something breaks", Correct: "A correct KCM copes.",
			Settings: func(story.Options) string { return "care" },
		}},
		Arms: []controlplane.Arm{"U0", "P"},
	}
	results := Results{"a": {
		"U0": result{
			KCM:     story.KCM{Arm: "U0", Version: "v1.37.0", GatesOff: []string{"NodeControllerLeaseCircuitBreaker", "StaleControllerConsistencyHPA", "StaleControllerConsistencyJob"}},
			figures: []story.Figure{{Name: "pods lost", Value: "3 of 3", Outcome: story.Wrong}, {Name: "seconds", Value: "7"}},
		},
		"P": result{
			KCM:     story.KCM{Arm: "P", Version: "v1.37.0+fresh.1", GatesOn: []string{"StaleControllerConsistency"}},
			figures: []story.Figure{{Name: "pods lost", Value: "0 of 3", Outcome: story.Right}, {Name: "seconds", Value: "12"}},
		},
	}}
	var b strings.Builder
	require.NoError(t, WriteReport(&b, plan, results))
	require.Equal(t, `
STORY  FIGURE     U0             P
a      pods lost  3 of 3  WRONG  0 of 3  ok
a      seconds    7              12
a      outcome    WRONG          ok

a: something breaks.
   A correct KCM copes.
   Run with: care.

U0 = kube-controller-manager v1.37.0; staleness gates on: none; off:
     NodeControllerLeaseCircuitBreaker StaleControllerConsistency{HPA, Job}
P  = kube-controller-manager v1.37.0+fresh.1; staleness gates on: StaleControllerConsistency; off:
     none
`, b.String())
	require.Equal(t, "WRONG, pods lost: 3 of 3", outcome(results["a"]["U0"]))
	require.Equal(t, "ok", outcome(results["a"]["P"]))
}

func TestBoard(t *testing.T) {
	b := newBoard(Plan{Stories: []story.Story{{ID: "a"}}, Arms: []controlplane.Arm{"U0", "U1"}})
	require.Empty(t, b.snapshot().Facts(), "nothing has begun")
	b.start("a", "U0")
	b.say("a", "U0", "all nodes are dead", "for 3 s")
	v := b.snapshot()
	v.at = v.runs[0].begin.Add(65 * time.Second)
	v.begin = v.runs[0].begin
	var lines []string
	for _, l := range v.Lines(80) {
		lines = append(lines, l.Text)
	}
	require.Equal(t, []string{
		"Staleness demo: 0 of 2 runs done, 1:05",
		"",
		"STORY  ARM  TIME  NOW",
		"a      U0   1:05  all nodes are dead: for 3 s",
		"a      U1   -     waiting its turn",
	}, lines)
	b.end("a", "U0", "done: ok")
	require.Contains(t, b.snapshot().Lines(80)[0].Text, "1 of 2 runs done")
	facts := b.snapshot().Facts()
	require.Len(t, facts, 1)
	require.Equal(t, "story a on U0: done: ok", facts[0].Text, "details are not for a pipe")
}
