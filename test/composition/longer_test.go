// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	// longer is how many times as long as drawn troubles last, up to longestTrouble. longerSeeds of each kind are drawn, unless LONGER_SEEDS is set.
	longer         = 5
	longestTrouble = 20 * time.Minute
	longerSeeds    = 2
)

// TestLongerTroubles runs random histories of all kinds with troubles that last longer: then limits and delays that grow decide. Of many seeds some fail on limits that docs/status.md names:
// orphans of a custom resource that cannot be proven for a minute, CronJobs that can be neither proven nor read, and deletions by pod garbage collection, which the client sends again.
func TestLongerTroubles(t *testing.T) {
	for name, draw := range map[string]func(uint64) schedule.Schedule{
		"workloads": schedule.Draw, "autoscalers": schedule.DrawAutoscalers, "claims": schedule.DrawClaims, "collections": schedule.DrawCollections,
		"cronjobs": schedule.DrawCronJobs, "services": schedule.DrawServices, "volumes": schedule.DrawVolumes,
	} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, number(t, "LONGER_SEEDS", longerSeeds), func(seed uint64) schedule.Schedule {
				s := draw(seed).Longer(longer, longestTrouble)
				s.Settle += longestTrouble
				return s
			})
		})
	}
}
