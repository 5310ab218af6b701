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

// A Deployment that recreates is rolled back while nothing can be proven, so its old pods are not deleted yet, and is paused: upstream's controller has a paused one
// whose ReplicaSets have no replicas start those of its template at once. Stock's old pods are gone by then.
func TestADeploymentThatRecreatesIsPausedWhileItsPodsWait(t *testing.T) {
	for name, pause := range map[string]schedule.Step{
		"for a while": {At: 106 * time.Second, Action: schedule.Pause, Target: "deployments-0", For: 5 * time.Second},
		"for long":    {At: 106 * time.Second, Action: schedule.Pause, Target: "deployments-0", For: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := deployment(true,
				schedule.Step{At: 50 * time.Second, Action: schedule.Roll, Target: "deployments-0"},
				schedule.Step{At: 80 * time.Second, Action: schedule.Unprovable, For: 60 * time.Second},
				schedule.Step{At: 100 * time.Second, Action: schedule.RollBack, Target: "deployments-0"}, pause)
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			for _, record := range []validate.Record{stock, ours} {
				require.Empty(t, record.Unjustified)
				require.NotEmpty(t, record.Undone[owner])
				require.False(t, record.Undone[owner][len(record.Undone[owner])-1].Open, "it is not rolled back")
			}
			require.Equal(t, stock.Digests[owner], ours.Digests[owner])
		})
	}
}

// One that is scaled up while it is paused starts pods on stock beside those of another template that its caches lack.
func TestADeploymentThatRecreatesIsPausedWithPodsUnseen(t *testing.T) {
	s := deployment(true,
		schedule.Step{At: 30 * time.Second, Action: schedule.Roll, Target: "deployments-0"},
		schedule.Step{At: 50 * time.Second, Action: schedule.Scale, Target: "deployments-0", N: 0},
		schedule.Step{At: 70 * time.Second, Action: schedule.Hold, Target: "pods", For: 40 * time.Second},
		schedule.Step{At: 75 * time.Second, Action: schedule.Scale, Target: "deployments-0", N: 4},
		schedule.Step{At: 85 * time.Second, Action: schedule.Scale, Target: "deployments-0", N: 0},
		schedule.Step{At: 87 * time.Second, Action: schedule.Pause, Target: "deployments-0", For: time.Minute},
		schedule.Step{At: 88 * time.Second, Action: schedule.RollBack, Target: "deployments-0"},
		schedule.Step{At: 90 * time.Second, Action: schedule.Scale, Target: "deployments-0", N: 4})
	stock, ours := both(t, s)
	require.True(t, breaks("revisions")(stock))
	require.Empty(t, ours.Unjustified)
}
