// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
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

// An autoscaler whose writes fail is tried as often as upstream tries it, every 15 s, though it waits for a proof, and its status is written as often, whether
// or not that can be. Nothing can be proven, or proofs are slow.
func TestAutoscalerThatWaitsAndCannotWrite(t *testing.T) {
	const from, length = time.Minute, 30 * time.Minute
	for _, trouble := range []schedule.Action{schedule.FailWrites, schedule.TimeOut} {
		for _, reads := range []schedule.Step{{Action: schedule.Broken, N: 1}, {Action: schedule.SlowReads, Delay: 4 * time.Second}} {
			for _, status := range []string{"status fails", "status is written"} {
				t.Run(fmt.Sprintf("%s, %s, %s", trouble, reads.Action, status), func(t *testing.T) {
					reads.At, reads.Target, reads.For = from, "pods", length
					s := schedule.Schedule{Nodes: 2,
						Autoscalers: []schedule.Autoscaler{{Name: "falls", Kind: "ReplicaSet", Metric: schedule.ByValue, Least: 1, Most: 9, Replicas: 6, Load: 6 * schedule.TargetLoad}},
						Steps: []schedule.Step{
							reads,
							{At: from, Action: trouble, Target: "replicasets", For: length},
							{At: from + 10*time.Second, Action: schedule.SetLoad, Target: "falls", N: 2 * schedule.TargetLoad},
						}}
					if status == "status fails" {
						s.Steps = append(s.Steps, schedule.Step{At: from, Action: trouble, Target: "horizontalpodautoscalers", For: length})
					}
					tried := map[arms.Arm]map[string]int{arms.Stock: {}, arms.Ours: {}}
					for arm, n := range tried {
						run(t, arm, s, func(line string) {
							for _, write := range []string{"update horizontalpodautoscalers/status", "update replicasets/scale"} {
								if strings.Contains(line, write) {
									n[write]++
								}
							}
						})
					}
					t.Log(tried)
					for write, n := range tried[arms.Ours] {
						require.Greater(t, tried[arms.Stock][write], 100)
						require.LessOrEqual(t, n, tried[arms.Stock][write]+10, write)
					}
				})
			}
		}
	}
}

// The answers to an autoscaler's status are server errors, and autoscalers cannot be proven, or slowly. The load falls, and later rises: the replicas are lowered after the
// longest wait, and raised at once.
func TestAutoscalerWhoseStatusIsUnknownGoesOn(t *testing.T) {
	const from, length = time.Minute, 10 * time.Minute
	for _, reads := range []schedule.Step{{Action: schedule.Broken, N: 1}, {Action: schedule.SlowReads, Delay: 20 * time.Second}} {
		t.Run(string(reads.Action), func(t *testing.T) {
			reads.At, reads.Target, reads.For = from, "horizontalpodautoscalers", length
			s := schedule.Schedule{Nodes: 2, Settle: time.Minute,
				Autoscalers: []schedule.Autoscaler{{Name: "falls", Kind: "Deployment", Metric: schedule.ByCPU, Least: 2, Most: 10, Replicas: 5, Load: 5 * schedule.TargetLoad}},
				Steps: []schedule.Step{
					reads,
					{At: from, Action: schedule.TimeOut, Target: "horizontalpodautoscalers", For: length},
					{At: from + 2*time.Second, Action: schedule.SetLoad, Target: "falls", N: 2 * schedule.TargetLoad},
					{At: from + 4*time.Minute, Action: schedule.SetLoad, Target: "falls", N: 6 * schedule.TargetLoad},
				}}
			stock, ours := both(t, s)
			for arm, r := range map[arms.Arm]validate.Record{arms.Stock: stock, arms.Ours: ours} {
				require.Len(t, r.Many["falls"], 1, arm)
				require.LessOrEqual(t, r.Many["falls"][0].For, time.Minute+2*arms.AutoscalerPeriod, arm)
				require.Len(t, r.Few["falls"], 1, arm)
				require.LessOrEqual(t, r.Few["falls"][0].For, arms.AutoscalerPeriod, arm)
			}
		})
	}
}

// The load falls while pods are held, for longer than replicas wait. Where they are computed from a total that is divided by what each pod is to have of it, upstream
// reads no pods, and ours waits for no proof of them.
func TestReplicasThatNoPodsCountForAreLoweredAtOnce(t *testing.T) {
	const falls = 2 * time.Minute
	s := schedule.Schedule{Nodes: 2, Settle: 2 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "others", Replicas: 2}},
		Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "Deployment", Metric: schedule.ByAverage, Least: 1, Most: 20, Replicas: 6, Load: 6 * schedule.TargetLoad}},
		Steps: []schedule.Step{
			{At: falls - 10*time.Second, Action: schedule.Hold, Target: "pods", For: 4 * time.Minute},
			{At: falls - 5*time.Second, Action: schedule.Scale, Target: "others", N: 4},
			{At: falls, Action: schedule.SetLoad, Target: "loaded", N: 2 * schedule.TargetLoad},
		}}
	lowered := map[arms.Arm]time.Duration{}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		run(t, arm, s, func(line string) {
			if at, err := strconv.ParseFloat(strings.Fields(line)[0], 64); err == nil && strings.Contains(line, "update deployments/scale") && lowered[arm] == 0 {
				lowered[arm] = time.Duration(at*float64(time.Second)) - falls
			}
		})
	}
	t.Logf("lowered after %v", lowered)
	require.Positive(t, lowered[arms.Stock])
	require.Positive(t, lowered[arms.Ours])
	require.LessOrEqual(t, lowered[arms.Ours], lowered[arms.Stock]+2*time.Second)
}

// Pods become ready while pods are not seen, and then the load is four times what they are for: the replicas are raised at once, without a proof, but to
// fewer than are needed, because few of the pods that are ready are seen. On stock, too.
func TestReplicasAreRaisedByThePodsThatAreSeen(t *testing.T) {
	const load, held, shown = 150 * time.Second, 110 * time.Second, 200 * time.Second
	s := schedule.Schedule{Nodes: 2,
		Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "ReplicaSet", Metric: schedule.ByValue, Least: 1, Most: 50, Replicas: 3, Load: 3 * schedule.TargetLoad, Late: 20 * time.Second}},
		Steps: []schedule.Step{
			{At: 100 * time.Second, Action: schedule.SetLoad, Target: "loaded", N: 10 * schedule.TargetLoad},
			{At: load, Action: schedule.SetLoad, Target: "loaded", N: 40 * schedule.TargetLoad},
		}}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				server, f, tr, _ := start(t, arm, s)
				for _, step := range s.Steps {
					tr.After(step.At, func() { tr.Do(step) })
				}
				tr.After(held, func() { f.Do(schedule.Step{Action: schedule.Hold, Target: "pods", For: shown - held}, tr.After) })
				at := func(d time.Duration) (n int) {
					time.Sleep(time.Until(began.Add(d)))
					server.Look(func(truth model.Truth) { n = replicasOf(truth, "loaded") })
					return n
				}
				raised := at(shown)
				require.Greater(t, raised, 10)
				require.Less(t, raised, 20, "what it may be raised to at once")
				require.Equal(t, 40, at(shown+2*time.Minute))
			})
		})
	}
}

// Fewer replicas are allowed, and then more, while pods cannot be proven. Ours has lowered the replicas, and the pods that are to be deleted for it wait: they carry the
// load, so that upstream's controller raises nothing. They are deleted once they are proven, and soon made again.
func TestPodsThatAreNotDeletedYetCarryTheLoad(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Settle: 2 * time.Minute,
		Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "Deployment", Metric: schedule.ByCPU, Least: 2, Most: 10, Replicas: 5, Load: 5 * schedule.TargetLoad}},
		Steps: []schedule.Step{
			{At: time.Minute, Action: schedule.Unprovable, Target: "pods", For: 10 * time.Minute},
			{At: 62 * time.Second, Action: schedule.SetMost, Target: "loaded", N: 3},
			{At: 300 * time.Second, Action: schedule.SetLeast, Target: "loaded", N: 4},
			{At: 310 * time.Second, Action: schedule.SetMost, Target: "loaded", N: 12},
		}}
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Few["loaded"])
	require.Len(t, ours.Few["loaded"], 1)
	require.LessOrEqual(t, ours.Few["loaded"][0].For, arms.AutoscalerPeriod, "their cache has them, so that one look is enough")
	require.EqualValues(t, 5, ours.Replicas["loaded"])
}

// Random histories of autoscalers: ours lowers no replicas that are needed, and raises them as soon.
func TestAutoscalerSeeds(t *testing.T) {
	eachSeed(t, number(t, "AUTOSCALER_SEEDS", autoscalerSeeds), schedule.DrawAutoscalers)
}

// An autoscaler is not looked at before the cache has its last status: while that is held, a load that rises again has nothing written. Ours is looked at as
// soon as it has it.
//
//conformance:kep-5647 Staleness Mitigation in Controllers: HPA waits for its own writes
func TestAutoscalerWaitsForItsOwnWrites(t *testing.T) {
	const from, held = 100 * time.Second, 2 * time.Minute
	s := schedule.Schedule{Nodes: 2, Settle: time.Minute,
		Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "Deployment", Metric: schedule.ByAverage, Least: 1, Most: 20, Replicas: 3, Load: 3000}},
		Steps: []schedule.Step{
			{At: from, Action: schedule.Hold, Target: "horizontalpodautoscalers", For: held},
			{At: from + time.Second, Action: schedule.SetLoad, Target: "loaded", N: 6000},
			{At: from + time.Minute, Action: schedule.SetLoad, Target: "loaded", N: 12000},
		}}
	for arm, soon := range map[arms.Arm]time.Duration{arms.Stock: arms.AutoscalerPeriod, arms.Ours: time.Second} {
		t.Run(string(arm), func(t *testing.T) {
			writes := map[string][]time.Duration{}
			run(t, arm, s, func(line string) {
				for _, what := range []string{"update deployments/scale", "update horizontalpodautoscalers/status"} {
					if at, err := strconv.ParseFloat(strings.Fields(line)[0], 64); err == nil && strings.Contains(line, what) && at > from.Seconds() {
						writes[what] = append(writes[what], time.Duration(at*float64(time.Second)))
					}
				}
			})
			require.Len(t, writes, 2)
			for what, at := range writes {
				require.GreaterOrEqual(t, len(at), 2, what)
				require.Less(t, at[0], from+time.Minute, "%s for the first load", what)
				require.GreaterOrEqual(t, at[1], from+held, "%s while the last status is not seen", what)
				require.Less(t, at[1], from+held+soon, "%s for the second load", what)
			}
		})
	}
}
