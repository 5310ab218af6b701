// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// collectorSeeds are those that run unless COLLECTOR_SEEDS says how many.
const collectorSeeds = 3

// orphaning is a history in which a ReplicaSet is scaled up, and its pods are to be left behind, while a resource is held.
func orphaning(f schedule.Family, held string, length time.Duration) schedule.Schedule {
	return schedule.Schedule{Nodes: 2, Settle: 2 * time.Minute, Families: []schedule.Family{f}, Steps: []schedule.Step{
		{At: time.Minute, Action: schedule.Hold, Target: held, For: length},
		{At: 62 * time.Second, Action: schedule.Scale, Target: f.Name, N: f.Replicas + 2},
		{At: 62 * time.Second, Action: schedule.AddDependent, Target: f.Name, N: 0},
		{At: 62 * time.Second, Action: schedule.AddDependent, Target: f.Name, N: 1},
		{At: 65 * time.Second, Action: schedule.RemoveOwner, Target: f.Name, N: 2},
	}}
}

// What the garbage collector has not seen yet is deleted on stock when it was to be orphaned.
func TestOrphansThatAreNotSeen(t *testing.T) {
	for _, held := range []string{"pods", "configmaps", "widgets"} {
		t.Run(held, func(t *testing.T) {
			stock, ours := both(t, orphaning(schedule.Family{Kind: "ReplicaSet", Name: "family", Replicas: 2, ConfigMaps: 1, Widgets: 1}, held, 20*time.Second))
			require.NotEmpty(t, stock.Unjustified)
			require.Equal(t, validate.Orphaned, stock.Unjustified[0].Rule)
			require.Empty(t, ours.Unjustified)
			require.Less(t, longest(ours.Lingering["family"]), 25*time.Second)
		})
	}
}

// An owner is deleted and made again under its name while its kind is not seen. On ours the stalled watch is ended, and the informer lists
// again, which shows the new one as a change of the old one; on stock that comes with any relist, and what the old one had is left for good.
func TestOwnerIsReplacedUnseen(t *testing.T) {
	for _, relists := range []bool{false, true} {
		t.Run(map[bool]string{false: "stalled", true: "relisted"}[relists], func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Monitor: !relists, Settle: 2 * time.Minute, Families: []schedule.Family{{Kind: "ConfigMap", Name: "family", ConfigMaps: 2, Widgets: 2}}, Steps: []schedule.Step{
				{At: time.Minute, Action: schedule.Hold, Target: "configmaps", For: time.Minute},
				{At: 65 * time.Second, Action: schedule.RemoveOwner, Target: "family", N: 0, Delay: time.Second},
			}}
			if relists {
				s.Steps = append(s.Steps, schedule.Step{At: 70 * time.Second, Action: schedule.Expire, Target: "configmaps"})
			}
			stock, ours := both(t, s)
			require.Len(t, stock.Garbage["family"], 1)
			require.Equal(t, relists, stock.Garbage["family"][0].Open)
			require.Len(t, ours.Garbage["family"], 1)
			require.False(t, ours.Garbage["family"][0].Open)
			require.Less(t, longest(ours.Garbage["family"]), time.Minute+5*time.Second)
		})
	}
}

// The monitor ends the stalled watch of a custom resource shortly before that would have gone on, and the server refuses another, and proofs. What the
// cache was shown to lack is known all the same. It is shown 12.5 s after the hold began, and the watch is ended 2.5 s later: the server refuses from
// between the two.
func TestOrphansOfAnEndedWatch(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: 2 * time.Minute, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", Replicas: 2, ConfigMaps: 1}}, Steps: []schedule.Step{
		{At: 60 * time.Second, Action: schedule.Hold, Target: "widgets", For: 25 * time.Second},
		{At: 64 * time.Second, Action: schedule.AddDependent, Target: "family", N: 1},
		{At: 74 * time.Second, Action: schedule.Throttle, Target: "widgets", For: 44 * time.Second, N: 10},
		{At: 88 * time.Second, Action: schedule.RemoveOwner, Target: "family", N: 2},
	}}
	stock, ours := both(t, s)
	require.Empty(t, stock.Unjustified)
	require.Empty(t, ours.Unjustified)
	require.Less(t, longest(ours.Lingering["family"]), 45*time.Second)
}

// Without the monitor nobody notices that the event of a dependent was lost: its owner waits to be orphaned for as long as for a cache that is stale.
func TestOrphanWhoseEventWasLost(t *testing.T) {
	for i, lost := range []string{"configmaps", "widgets"} {
		for monitor, least := range map[bool]time.Duration{true: 0, false: []time.Duration{5 * time.Minute, time.Minute}[i]} {
			t.Run(fmt.Sprintf("%s, monitor %t", lost, monitor), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := schedule.Schedule{Nodes: 2, Monitor: monitor, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", ConfigMaps: i, Widgets: 1 - i}}}
					server, f, tr, _ := start(t, arms.Ours, s)
					// The watch ends by itself after five to ten minutes, and the next one brings the event.
					watched := time.Now().Add(5 * time.Minute)
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.LoseEvent, Target: lost, For: time.Second}, tr.After)
					tr.Do(schedule.Step{Action: schedule.AddDependent, Target: "family", N: i})
					time.Sleep(5 * time.Second)
					tr.Do(schedule.Step{Action: schedule.RemoveOwner, Target: "family", N: 2})
					deleted := time.Now()
					for gone := false; !gone && time.Since(deleted) < 10*time.Minute; {
						time.Sleep(time.Second)
						server.Look(func(truth model.Truth) { gone = truth.Get(model.ReplicaSets, traffic.Namespace, "family") == nil })
					}
					require.GreaterOrEqual(t, time.Since(deleted), min(least, watched.Sub(deleted)))
					require.Less(t, time.Since(deleted), least+50*time.Second)
				})
			})
		}
	}
}

// What the graph has is orphaned at once, as on stock, while a cache is stale. An owner that is deleted once more meanwhile, without the policy, takes along no dependent
// that stock leaves.
func TestWhatIsSeenIsOrphanedAtOnce(t *testing.T) {
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := schedule.Schedule{Nodes: 2, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", ConfigMaps: 2, Widgets: 1}}}
				server, f, tr, _ := start(t, arm, s)
				orphans := func() (n int) {
					server.Look(func(truth model.Truth) { n = familyOf(truth, "family") })
					return n
				}
				time.Sleep(time.Minute)
				f.Do(schedule.Step{Action: schedule.Hold, Target: "widgets", For: 30 * time.Second}, tr.After)
				tr.Do(schedule.Step{Action: schedule.AddDependent, Target: "family", N: 1})
				time.Sleep(2 * time.Second)
				tr.Do(schedule.Step{Action: schedule.RemoveOwner, Target: "family", N: 2})
				time.Sleep(10 * time.Second)
				require.Equal(t, 3, orphans())
				tr.Do(schedule.Step{Action: schedule.RemoveOwner, Target: "family", N: 0})
				time.Sleep(time.Minute)
				require.GreaterOrEqual(t, orphans(), 3)
			})
		})
	}
}

// A ReplicaSet whose pods are not seen is not gone before them where its deletion is to wait for them, as on stock.
func TestForegroundDeletionOfWhatIsNotSeen(t *testing.T) {
	s := orphaning(schedule.Family{Kind: "ReplicaSet", Name: "family"}, "pods", 20*time.Second)
	s.Steps[len(s.Steps)-1].N = 1
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Unjustified)
	require.Equal(t, validate.Foreground, stock.Unjustified[0].Rule)
	require.Empty(t, ours.Unjustified)
	require.Less(t, longest(ours.Lingering["family"]), 25*time.Second)
}

// Writes fail, and the server proves nothing. The owner of pods that cannot be deleted does not have them tried once more when its own wait is over:
// each failure doubles the backoff, and the deletion would end more than ten minutes after stock's. One that cannot be written itself has waited
// for its minute once, and does not wait for another at each try.
func TestForegroundDeletionWhileWritesFail(t *testing.T) {
	for failing, more := range map[string]time.Duration{"pods": 0, "replicasets": time.Minute} {
		t.Run(failing, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Settle: 3 * time.Minute, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", Replicas: 2}}, Steps: []schedule.Step{
				{At: time.Minute, Action: schedule.FailWrites, Target: failing, For: 10 * time.Minute},
				{At: time.Minute, Action: schedule.Unprovable, For: 10 * time.Minute},
				{At: 62 * time.Second, Action: schedule.RemoveOwner, Target: "family", N: 1},
			}}
			stock, ours := both(t, s)
			require.Len(t, ours.Lingering["family"], 1)
			require.False(t, ours.Lingering["family"][0].Open)
			require.InDelta(t, (longest(stock.Lingering["family"]) + more).Seconds(), longest(ours.Lingering["family"]).Seconds(), 3)
			require.LessOrEqual(t, ours.Collecting["delete"], stock.Collecting["delete"])
		})
	}
}

// What the garbage collector knows only as the owner of something else it asks for with backoff until it has seen it, and for its owner each time.
// Stock does that as often as ours. So no history is judged by it in which an owner ends sooner on ours, and others make it again while its dependents
// are held.
func TestOwnersThatAreNotSeenArePolled(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Settle: time.Minute, Families: []schedule.Family{{Kind: "ConfigMap", Name: "family", Chained: true}}, Steps: []schedule.Step{
		{At: 60 * time.Second, Action: schedule.Hold, Target: "configmaps", For: 40 * time.Second},
		{At: 61 * time.Second, Action: schedule.AddDependent, Target: "family", N: 0},
		{At: 61 * time.Second, Action: schedule.AddDependent, Target: "family", N: 0},
		{At: 70 * time.Second, Action: schedule.AddDependent, Target: "family", N: 0},
	}}
	stock, ours := both(t, s)
	require.Equal(t, stock.Polls, ours.Polls)
	require.Equal(t, stock.Collecting, ours.Collecting)
	require.InDelta(t, 3*13, ours.Polls, 3)
	require.Equal(t, 2*(ours.Polls+3), ours.Collecting["get"], "and once when they are seen")
}

// Dependents that cannot be written keep their owner for as long as they cannot, and for as long again, on stock, too. If they are not seen, stock's owner
// goes at once, and they are deleted.
func TestOrphansThatCannotBeWritten(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(map[bool]string{false: "seen", true: "not seen"}[held], func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Settle: 3 * time.Minute, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", Replicas: 1}}, Steps: []schedule.Step{
				{At: 115 * time.Second, Action: schedule.Hold, Target: "widgets", For: 39 * time.Second},
				{At: 131 * time.Second, Action: schedule.AddDependent, Target: "family", N: 0},
				{At: 136 * time.Second, Action: schedule.FailWrites, Target: "configmaps", N: 409, For: 102 * time.Second},
				{At: 142 * time.Second, Action: schedule.RemoveOwner, Target: "family", N: 2},
			}}
			if held {
				s.Steps[0].Target = "configmaps"
			}
			stock, ours := both(t, s)
			require.Equal(t, held, stock.Orphaned["family"])
			require.Empty(t, ours.Unjustified)
			if !held {
				require.Greater(t, longest(stock.Lingering["family"]), 140*time.Second)
			}
			require.InDelta(t, 165, longest(ours.Lingering["family"]).Seconds(), 35)
		})
	}
}

// A dependent whose event was lost is deleted once it is seen, on stock, too: its informer has it after a relist.
func TestOrphanWhoseEventWasLostIsSeenLater(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: time.Minute, Families: []schedule.Family{{Kind: "Widget", Name: "family", Widgets: 1}}, Steps: []schedule.Step{
		{At: 66600 * time.Millisecond, Action: schedule.LoseEvent, Target: "widgets", For: 20 * time.Millisecond},
		{At: 66600 * time.Millisecond, Action: schedule.AddDependent, Target: "family", N: 1},
		{At: 67 * time.Second, Action: schedule.RemoveOwner, Target: "family", N: 2},
		{At: 90 * time.Second, Action: schedule.Expire, Target: "widgets"},
	}}
	stock, ours := both(t, s)
	for _, r := range []validate.Record{stock, ours} {
		require.NotEmpty(t, r.Unjustified)
		require.Equal(t, validate.OrphanedLost, r.Unjustified[0].Rule)
	}
}

// Random histories of owners and dependents: ours deletes nothing that has an owner or was to be left behind, and leaves no garbage for longer.
func TestCollectorSeeds(t *testing.T) {
	eachSeed(t, number(t, "COLLECTOR_SEEDS", collectorSeeds), schedule.DrawCollections)
}
