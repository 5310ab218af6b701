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

// claimSeeds are those that run unless CLAIM_SEEDS says how many.
const claimSeeds = 5

// A pod that has ended and its claim with it is made again under its name while pods are not seen: stock takes the claim of the new one away.
func TestClaimOfAPodThatIsMadeAgainUnseen(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Settle: 2 * time.Minute, Claimers: []schedule.Claimer{{Name: "claimer", Shared: []int{0}}}, Steps: []schedule.Step{
		{At: 60 * time.Second, Action: schedule.EndClaimer, Target: "claimer"},
		{At: 65 * time.Second, Action: schedule.Hold, Target: "pods", For: 30 * time.Second},
		{At: 66 * time.Second, Action: schedule.RemakeClaimer, Target: "claimer"},
	}}
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Unjustified)
	require.Equal(t, validate.Released, stock.Unjustified[0].Rule)
	require.Empty(t, ours.Unjustified)
}

// For a pod that has ended no claim is generated. Stock makes some, as it reserves the claim that the pod shares with another anew, and deletes each again.
func TestNoClaimForAPodThatHasEnded(t *testing.T) {
	s := schedule.Schedule{
		Nodes: 2, Settle: 4 * time.Minute, Claimers: []schedule.Claimer{{Name: "claimer", Own: 1, Shared: []int{0}}, {Name: "other", Shared: []int{0}, Bound: true}},
		Steps: []schedule.Step{{At: time.Minute, Action: schedule.EndClaimer, Target: "claimer"}},
	}
	stock, ours := both(t, s)
	const create = "create resourceclaims"
	require.Greater(t, stock.Claiming[create], 1)
	require.Equal(t, 1, ours.Claiming[create], "the one that it had when it ran")
}

// Claims whose reservations cannot be dropped, as an admission webhook is down, are tried as often as by upstream, though what is no longer needed is read
// live each time, as nothing can be proven, or is proven late each time.
func TestReservationsThatCannotBeDropped(t *testing.T) {
	const from, length = time.Minute, 30 * time.Minute
	for name, proofs := range map[string]schedule.Step{
		"no proofs":   {At: from, Action: schedule.Unprovable, For: length},
		"slow proofs": {At: from, Action: schedule.SlowReads, Target: "pods", Delay: 4 * time.Second, For: length},
	} {
		t.Run(name, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Steps: []schedule.Step{proofs, {At: from, Action: schedule.FailWrites, Target: "resourceclaims", For: length}}}
			for i := range 6 {
				name := fmt.Sprint("claimer-", i)
				s.Claimers = append(s.Claimers, schedule.Claimer{Name: name, Shared: []int{0, 1}})
				s.Steps = append(s.Steps, schedule.Step{At: from + time.Second + time.Duration(i)*300*time.Millisecond, Action: schedule.EndClaimer, Target: name})
			}
			const update = "update resourceclaims/status"
			stock, ours := run(t, arms.Stock, s, nil).Claiming[update], run(t, arms.Ours, s, nil).Claiming[update]
			t.Logf("%s: stock %d, ours %d", update, stock, ours)
			require.Greater(t, stock, 30)
			require.LessOrEqual(t, ours, stock*5/4+10)
		})
	}
}

// Random histories of pods that claim devices: ours takes none of a pod that needs it, and releases as soon.
func TestClaimSeeds(t *testing.T) {
	eachSeed(t, number(t, "CLAIM_SEEDS", claimSeeds), schedule.DrawClaims)
}
