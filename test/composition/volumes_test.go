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

// volumeSeeds are those that run unless VOLUME_SEEDS says how many.
const volumeSeeds = 3

// A node was out of service, or not ready for the 6 min after which a detachment is forced, and is repaired while nodes are held. It ends the pod that it still
// runs, whose volume it unmounts. Stock detaches that at once, ours when it is unmounted.
func TestVolumeOfANodeThatIsRepairedUnseen(t *testing.T) {
	for name, outage := range map[string][]schedule.Step{
		"out of service": {
			{At: time.Minute, Action: schedule.OutOfService, N: 0, Delay: 20 * time.Second, For: 40 * time.Second},
			{At: 99 * time.Second, Action: schedule.Hold, Target: "nodes", For: time.Minute},
			{At: 120 * time.Second, Action: schedule.SeizePod, Target: "volume", N: 1},
		},
		"not ready": {
			{At: time.Minute, Action: schedule.KillNode, N: 0, For: 435 * time.Second},
			{At: 150 * time.Second, Action: schedule.SeizePod, Target: "volume", N: 1},
			{At: 499 * time.Second, Action: schedule.Hold, Target: "nodes", For: time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Settle: 3 * time.Minute, Volumes: []schedule.Volume{{Name: "volume", Unmount: 30 * time.Second, Stays: true}}, Steps: outage}
			stock, ours := both(t, s)
			require.NotEmpty(t, stock.Unjustified)
			require.Equal(t, validate.Detached, stock.Unjustified[0].Rule)
			require.Empty(t, ours.Unjustified)
			require.Less(t, longest(ours.Attached["volume"]), longest(stock.Attached["volume"])+time.Minute+10*time.Second)
		})
	}
}

// Random histories of volumes: ours detaches none that a node uses which is well, and the others as soon.
func TestVolumeSeeds(t *testing.T) {
	eachSeed(t, number(t, "VOLUME_SEEDS", volumeSeeds), schedule.DrawVolumes)
}
