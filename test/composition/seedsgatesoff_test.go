// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/report"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// gatesOffSeeds are so many histories, unless GATES_OFF_SEEDS says how many.
const gatesOffSeeds = 20

// TestSeedsBesideGatesOff runs histories of TestSeeds beside stock with its staleness gates off, whose controllers wait for no writes of their own: GATES_OFF_SEEDS of them from FIRST
// on. As there, a rule counts if two of three runs break it.
func TestSeedsBesideGatesOff(t *testing.T) {
	first, n := number(t, "FIRST", firstSeed), number(t, "GATES_OFF_SEEDS", gatesOffSeeds)
	for seed := first; seed < first+n; seed++ {
		s := schedule.Draw(seed)
		found := twoOfThree(func() []validate.Violation {
			return validate.Compare(s, runGatesOff(t, s), run(t, arms.Ours, s, nil))
		})
		if len(found) > 0 {
			t.Errorf("seed %d:\n%s", seed, report.Text(s, found))
		}
	}
}

// runGatesOff is run for stock with its staleness gates off.
func runGatesOff(t *testing.T, s schedule.Schedule) validate.Record {
	t.Helper()
	set := func(on bool) {
		for _, controller := range []string{"DaemonSet", "HPA", "Job", "ReplicaSet", "StatefulSet"} {
			require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("StaleControllerConsistency%s=%t", controller, on)))
		}
	}
	set(false)
	defer set(true)
	return run(t, arms.Stock, s, nil)
}

// With its gates off stock waits for none of its own writes: it tries to write a status by one that it has not seen, again and again.
func TestGatesOffWaitForNothing(t *testing.T) {
	s := schedule.Schedule{Nodes: 3, Settle: time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner", Replicas: 3}}, Steps: []schedule.Step{
		{At: time.Minute, Action: schedule.Hold, Target: "replicasets", For: 20 * time.Second},
		{At: 62 * time.Second, Action: schedule.Unready, Target: "owner", For: 30 * time.Second},
		{At: 66 * time.Second, Action: schedule.Unready, Target: "owner", N: 1, For: 30 * time.Second},
	}}
	owner, tries := validate.Owners(s)[0], "update replicasets/status"
	require.Greater(t, runGatesOff(t, s).Requests[owner][tries], run(t, arms.Stock, s, nil).Requests[owner][tries])
}
