// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// One write fails after the other: a DaemonSet's revision is refused for a minute, while its pod turns unready and ready again, and once it is made, the status is, for three. A queue counts
// the failures of both, so on stock nothing is made up for within a quarter of an hour.
func TestAnotherWriteFailsOnceTheFirstSucceeds(t *testing.T) {
	const begins, first, second = time.Minute, time.Minute, 3 * time.Minute
	s := schedule.Schedule{
		Nodes: 1, Settle: 12 * time.Minute,
		Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "owner"}},
		Steps: []schedule.Step{
			{At: begins, Action: schedule.FailWrites, Target: "controllerrevisions", N: 422, For: first},
			{At: begins + time.Second, Action: schedule.Roll, Target: "owner"},
			{At: begins + 2*time.Second, Action: schedule.Flap, Target: "owner", Delay: 3 * time.Second, For: first / 2},
			{At: begins + first, Action: schedule.FailWrites, Target: "daemonsets", N: 503, For: second},
		},
	}
	stock, ours := both(t, s)
	owner := validate.Owners(s)[0]
	last := func(r validate.Record) validate.Span { return r.Untold[owner][len(r.Untold[owner])-1] }
	require.True(t, last(stock).Open, "events did not double the delay")
	require.False(t, last(ours).Open)
	require.LessOrEqual(t, last(ours).From+last(ours).For, begins+first+2*second+15*time.Second)
}
