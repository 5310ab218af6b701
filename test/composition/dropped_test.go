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
	tries := "update deployments/status"
	require.LessOrEqual(t, ours.Requests[owner][tries], stock.Requests[owner][tries]+5)
}
