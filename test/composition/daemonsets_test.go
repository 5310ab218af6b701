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

// Upstream's queue keeps the earliest of several times at which a DaemonSet is to come back as its pods become available. If that was for a pod that another template has
// replaced, stock comes back in time only if it waits for its own writes just then, and one that surges may not come back at all. Nor may it where a node's clock is
// ahead, or where the leader is new, which sees no pod become ready.
func TestDaemonSetRollsAsItsPodsBecomeAvailable(t *testing.T) {
	at := func(seconds ...float64) (steps []schedule.Step) {
		for _, s := range seconds {
			steps = append(steps, schedule.Step{At: time.Duration(s * float64(time.Second)), Action: schedule.Roll, Target: "rolled"})
		}
		return steps
	}
	for name, c := range map[string]struct {
		nodes int
		owner schedule.Owner
		steps []schedule.Step
		// most is how much later than stock it may be, where stock ends.
		most time.Duration
	}{
		"three at a time":          {nodes: 6, owner: schedule.Owner{MinReady: 23, MaxUnavailable: 3}, steps: at(60, 89.9)},
		"surge":                    {nodes: 5, owner: schedule.Owner{MinReady: 7, Surge: 1}, steps: at(60, 83, 87.3, 116.2)},
		"surge, and late events":   {nodes: 6, owner: schedule.Owner{MinReady: 20, Surge: 1}, steps: append(at(60, 75, 95), schedule.Step{At: 50 * time.Second, Action: schedule.Late, Target: "pods", Delay: 2 * time.Second, For: 10 * time.Minute}), most: 2 * time.Second},
		"surge, and a clock ahead": {nodes: 4, owner: schedule.Owner{MinReady: 20, Surge: 1}, steps: append(at(60), schedule.Step{At: 30 * time.Second, Action: schedule.Clock, N: 2, Delay: 5 * time.Second})},
		"surge, and a new leader":  {nodes: 4, owner: schedule.Owner{MinReady: 20, Surge: 1}, steps: append(at(60), schedule.Step{At: 75 * time.Second, Action: schedule.Restart}), most: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c.owner.Kind, c.owner.Name = "DaemonSet", "rolled"
			s := schedule.Schedule{Nodes: c.nodes, Monitor: true, Settle: 6 * time.Minute, Owners: []schedule.Owner{c.owner}, Steps: c.steps}.Later(0)
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			end, of, our := s.End()+s.Settle, ends(stock.Undone[owner]), ends(ours.Undone[owner])
			t.Logf("stock %s, ours %s of %s", of, our, end)
			require.NotZero(t, our, "nothing was rolled")
			require.Less(t, our, end, "it has not ended")
			require.LessOrEqual(t, our, of+c.most)
		})
	}
}
