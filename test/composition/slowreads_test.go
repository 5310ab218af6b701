// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// Where the server takes long for reads, several deletions one after the other, of one controller or of two, wait for one proof, and not for one each. Those of a DaemonSet need nodes
// that are proven as of when each reconcile began.
func TestDeletionsWhileReadsAreSlow(t *testing.T) {
	for name, c := range map[string]struct {
		owner  schedule.Owner
		step   schedule.Step
		proofs time.Duration // that are waited for one after the other
	}{
		"StatefulSet scaled down":   {schedule.Owner{Kind: "StatefulSet", Name: "owner", Replicas: 6}, schedule.Step{Action: schedule.Scale, N: 2}, 1},
		"Deployment scaled down":    {schedule.Owner{Kind: "Deployment", Name: "owner", Replicas: 6}, schedule.Step{Action: schedule.Scale, N: 2}, 1},
		"Deployment that recreates": {schedule.Owner{Kind: "Deployment", Name: "owner", Replicas: 6, Recreate: true}, schedule.Step{Action: schedule.Roll}, 3},
		"DaemonSet rolled":          {schedule.Owner{Kind: "DaemonSet", Name: "owner"}, schedule.Step{Action: schedule.Roll}, 2},
	} {
		for _, delay := range []time.Duration{1500 * time.Millisecond, 3 * time.Second, 8 * time.Second} {
			t.Run(fmt.Sprint(name, ", ", delay), func(t *testing.T) {
				const at = time.Minute
				s := schedule.Schedule{Nodes: 4, Owners: []schedule.Owner{c.owner}, Settle: time.Minute}
				for _, resource := range []string{"pods", "nodes", "replicasets", "deployments", "daemonsets", "statefulsets", "controllerrevisions"} {
					s.Steps = append(s.Steps, schedule.Step{At: at / 2, Action: schedule.SlowReads, Target: resource, Delay: delay, For: 3 * time.Minute})
				}
				step := c.step
				step.At, step.Target = at, "owner"
				s.Steps = append(s.Steps, step)
				took := map[arms.Arm]time.Duration{}
				for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
					record := run(t, arm, s, nil)
					for _, span := range record.Undone[validate.Owners(s)[0]] {
						require.False(t, span.Open)
						took[arm] = max(took[arm], span.From+span.For-at)
					}
					require.Positive(t, took[arm])
				}
				t.Logf("stock %v, ours %v", took[arms.Stock], took[arms.Ours])
				require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+c.proofs*delay+time.Second)
			})
		}
	}
}
