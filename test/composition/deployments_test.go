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

func deployment(recreate bool, steps ...schedule.Step) schedule.Schedule {
	return schedule.Schedule{Nodes: 3, Monitor: true, Settle: 2 * time.Minute, Steps: steps,
		Owners: []schedule.Owner{{Kind: "Deployment", Name: "deployments-0", Replicas: 4, Recreate: recreate}, {Kind: "Deployment", Name: "deployments-1", Replicas: 3}}}
}

// Both kinds of rollouts take no more writes and time than upstream's while no cache is stale.
func TestDeploymentsRoll(t *testing.T) {
	for name, recreate := range map[string]bool{"rolling": false, "recreating": true} {
		t.Run(name, func(t *testing.T) {
			s := deployment(recreate,
				schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "deployments-0"},
				schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "deployments-1"},
				schedule.Step{At: 2 * time.Minute, Action: schedule.Scale, Target: "deployments-0", N: 2},
				schedule.Step{At: 3 * time.Minute, Action: schedule.Roll, Target: "deployments-0"})
			stock, _ := both(t, s)
			owner := validate.Owners(s)[0]
			require.Greater(t, stock.Requests[owner]["update replicasets"], 2)
			require.False(t, stock.Undone[owner][len(stock.Undone[owner])-1].Open)
			require.Empty(t, stock.Unjustified)
		})
	}
}

// A Deployment that recreates, whose pods are made and whose template changes while pod events are held, starts the new pods
// beside the old ones on stock.
func TestDeploymentThatRecreatesUnseenPods(t *testing.T) {
	s := deployment(true,
		schedule.Step{At: 50 * time.Second, Action: schedule.Hold, Target: "pods", For: 40 * time.Second},
		schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "deployments-0", N: 4},
		schedule.Step{At: 75 * time.Second, Action: schedule.Roll, Target: "deployments-0"})
	s.Owners[0].Replicas = 0
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Unjustified)
	require.Equal(t, "revisions", stock.Unjustified[0].Rule)
	require.Empty(t, ours.Unjustified)
}
