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

// autoscalerSeeds are those that run unless AUTOSCALER_SEEDS says how many.
const autoscalerSeeds = 3

// Pods become ready while pods are not seen, and then the load is a third more than they are for: stock lowers the replicas to what the few want that it sees.
func TestReplicasUnderLoadAreNotLowered(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Settle: 8 * time.Minute,
		Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "Deployment", Metric: schedule.ByValue, Least: 1, Most: 20, Replicas: 3, Load: 3000, Late: 20 * time.Second}},
		Steps: []schedule.Step{
			{At: 100 * time.Second, Action: schedule.SetLoad, Target: "loaded", N: 10000},
			{At: 110 * time.Second, Action: schedule.Hold, Target: "pods", For: 90 * time.Second},
			{At: 150 * time.Second, Action: schedule.SetLoad, Target: "loaded", N: 13000},
		}}
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Unjustified)
	require.Equal(t, validate.Lowered, stock.Unjustified[0].Rule)
	require.Empty(t, ours.Unjustified)
}

// Random histories of autoscalers: ours lowers no replicas that are needed, and raises them as soon.
func TestAutoscalerSeeds(t *testing.T) {
	eachSeed(t, number(t, "AUTOSCALER_SEEDS", autoscalerSeeds), schedule.DrawAutoscalers)
}
