// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// Reads of scales are so slow that an autoscaler has its turn once a minute. Replicas are lowered after the longest wait all the same, though their caches are stale, or cannot be proven, for
// half an hour.
func TestValuesThatQueueForLongerThanTheyWait(t *testing.T) {
	const from, length, turn = time.Minute, 30 * time.Minute, time.Minute
	for name, fault := range map[string]schedule.Step{"stale": {Action: schedule.Hold}, "unknown": {Action: schedule.Broken, N: 1}} {
		t.Run(name, func(t *testing.T) {
			fault.At, fault.Target, fault.For = from, "pods", length
			s := schedule.Schedule{Nodes: 2, Settle: time.Minute, Owners: []schedule.Owner{{Kind: "ReplicationController", Name: "others", Replicas: 2}}, Steps: []schedule.Step{
				fault,
				{At: from, Action: schedule.SlowReads, Target: "replicasets", Delay: 5 * time.Second, For: length},
				{At: from + 10*time.Second, Action: schedule.Scale, Target: "others", N: 4},
				{At: from + 2*turn, Action: schedule.SetLoad, Target: "falls", N: schedule.TargetLoad},
			}}
			for i := range 60 {
				a := schedule.Autoscaler{Name: fmt.Sprint("loaded-", i), Kind: "ReplicaSet", Metric: schedule.ByValue, Least: 1, Most: 3, Replicas: 2, Load: 2 * schedule.TargetLoad}
				if i == 0 {
					a.Name = "falls"
				}
				s.Autoscalers = append(s.Autoscalers, a)
			}
			stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
			t.Logf("stock: %+v; ours: %+v", stock.Many["falls"], ours.Many["falls"])
			limit := rvtracker.OwnerLimits.Of(name == "stale")
			require.Len(t, stock.Many["falls"], 1)
			require.Len(t, ours.Many["falls"], 1)
			require.LessOrEqual(t, ours.Many["falls"][0].For, stock.Many["falls"][0].For+limit+2*turn)
		})
	}
}
