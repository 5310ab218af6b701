// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// The status of a Deployment cannot be written for four minutes, in which it is rolled. Its queue gives it up after 16 tries, and on stock its status is wrong until
// something changes. Ours tries it again, seldom.
func TestADeploymentThatItsQueueDrops(t *testing.T) {
	s := schedule.Schedule{
		Nodes: 3, Settle: 10 * time.Minute,
		Owners: []schedule.Owner{{Kind: "Deployment", Name: "owner", Replicas: 2}},
		Steps: []schedule.Step{
			{At: 59 * time.Second, Action: schedule.FailWrites, Target: "deployments", N: 503, For: 4 * time.Minute},
			{At: time.Minute, Action: schedule.Roll, Target: "owner"},
		},
	}
	stock, ours := both(t, s)
	owner := validate.Owners(s)[0]
	wrong := func(untold []validate.Span) bool { return len(untold) > 0 && untold[len(untold)-1].Open }
	require.True(t, wrong(stock.Untold[owner]), "on stock its status is right at the end: nothing was dropped")
	require.False(t, wrong(ours.Untold[owner]))
	require.LessOrEqual(t, failedTries(t, arms.Ours, s), failedTries(t, arms.Stock, s), "it comes back no sooner than its queue gives it up")

	s.Steps[0].For = 30 * time.Minute
	require.Equal(t, failedTries(t, arms.Stock, s)+3, failedTries(t, arms.Ours, s), "after 164, 328 and 655 s")
}

// failedTries is how many times the status of a Deployment could not be written.
func failedTries(t *testing.T, arm arms.Arm, s schedule.Schedule) int {
	t.Helper()
	var tries atomic.Int32
	run(t, arm, s, func(line string) {
		if strings.Contains(line, "update deployments/status/default/owner ") && strings.Contains(line, ": 503") {
			tries.Add(1)
		}
	})
	return int(tries.Load())
}
