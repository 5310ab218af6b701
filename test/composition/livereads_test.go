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
)

// Where the server answers 429 it is not asked the more for each action that waits: 20 owners whose deletions wait had 12,000 lists of pods made in 10 min.
func TestLiveReadsOfABusyServerAreFew(t *testing.T) {
	busy := schedule.Step{At: time.Minute, Action: schedule.Broken, Target: "pods", N: 1, For: 10 * time.Minute}
	for _, kind := range []string{"ReplicaSet", "StatefulSet", "Deployment"} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Steps: []schedule.Step{busy}}
			for i := range 20 {
				o := schedule.Owner{Kind: kind, Name: fmt.Sprint("owner-", i), Replicas: 3}
				s.Owners = append(s.Owners, o)
				s.Steps = append(s.Steps, schedule.Step{At: busy.At + time.Duration(2+i)*time.Second, Action: schedule.Scale, Target: o.Name, N: 1})
			}
			require.Less(t, run(t, arms.Ours, s, nil).Probes["pods"], 600, "less than one a second, for all")
		})
	}
	t.Run("claims", func(t *testing.T) {
		s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: 6 * time.Minute, Claimers: []schedule.Claimer{{Name: "own", Own: 2}, {Name: "shares", Own: 1, Shared: []int{0}}},
			Steps: []schedule.Step{busy, {At: 62 * time.Second, Action: schedule.EndClaimer, Target: "own"}, {At: 64 * time.Second, Action: schedule.EndClaimer, Target: "shares"}}}
		ours := run(t, arms.Ours, s, nil)
		require.Greater(t, ours.Claiming["list pods"], 5, "they wait, and read")
		require.Less(t, ours.Claiming["list pods"], 60)
	})
}

// Nor is it asked again and again about what it was shown to have otherwise than the cache: ten owners, each with a pod that is deleted unseen, had 2,200 reads of
// pods made in 10 min.
func TestLiveReadsOfAStaleCacheAreFew(t *testing.T) {
	held := schedule.Step{At: time.Minute, Action: schedule.Hold, Target: "pods", For: 10 * time.Minute}
	for _, kind := range []string{"ReplicaSet", "StatefulSet", "Deployment", "Job", "DaemonSet"} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Steps: []schedule.Step{held}}
			waits := schedule.Step{Action: schedule.Scale, N: 1}
			if kind == "DaemonSet" {
				waits = schedule.Step{Action: schedule.Roll, N: 1}
			}
			for i := range 10 {
				o := schedule.Owner{Kind: kind, Name: fmt.Sprint("owner-", i), Replicas: 3}
				s.Owners = append(s.Owners, o)
				waits.At, waits.Target = held.At+time.Duration(4+i)*time.Second, o.Name
				s.Steps = append(s.Steps, schedule.Step{At: held.At + time.Duration(2+i)*time.Second, Action: schedule.DeletePod, Target: o.Name, N: 2}, waits)
			}
			require.Less(t, run(t, arms.Ours, s, nil).Probes["pods"], 1300, "less than two a second, for all")
		})
	}
}

// An action goes on by a live read soon after the server answers these again, though the cache stays stale.
func TestLiveReadsGoOnAfterABusyServer(t *testing.T) {
	s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner", Replicas: 3}}, Steps: []schedule.Step{
		{At: time.Minute, Action: schedule.Hold, Target: "pods", For: 6 * time.Minute},
		{At: time.Minute, Action: schedule.Broken, Target: "pods", N: 1, For: 2 * time.Minute},
		{At: 62 * time.Second, Action: schedule.Scale, Target: "owner", N: 1},
	}}
	ours := run(t, arms.Ours, s, nil)
	for _, excess := range ours.Excess {
		require.Less(t, longest(excess), 2*time.Minute+40*time.Second, "at most 30 s after it answers again")
	}
}
