// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/kept"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const (
	// soakJobs are made and removed in all, each with a pod, unless SOAK says how many; in rounds of up to soakRound.
	soakJobs, soakRounds, soakRound = 240, 4, 500
	// jobsPerNamespace and jobsPerOther say how many namespaces, and owners of each other kind, come with them.
	jobsPerNamespace, jobsPerOther = 500, 100
	// troubledEvery says in how many of the later rounds there are troubles.
	troubledEvery = 10
	// soakQPS is of each client; a few requests are made for each owner, one after the other.
	soakQPS = 1000
	// soakWork is for how long a round's owners are there; what is kept is looked at meanwhile, in the first round.
	soakWork, lookEvery = 3 * time.Minute, time.Second
	// soakRest is after a round, past all that is kept for a while.
	soakRest = 15 * time.Minute
	// keptMore is what ours may keep of a removed owner more than stock, and keptNoise besides, in bytes.
	keptMore  = 64
	keptNoise = 1 << 18
)

// soak makes and removes owners and namespaces in rounds, half of them under names that come back, and returns what is
// kept after each round.
func soak(t *testing.T, arm arms.Arm, jobs, rounds int) (after []kept.Snapshot, most kept.Counts) {
	most = kept.Counts{}
	synctest.Test(t, func(t *testing.T) {
		legacyregistry.Reset()
		server := model.New()
		f := faults.New(server)
		server.Fate = f.Fate
		tr := traffic.Start(server, schedule.Schedule{Nodes: 3})
		server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Monitor: true, Namespaces: true, QPS: soakQPS})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for round := range rounds {
			makeAndRemove(tr, f, jobs/rounds, round, func() {
				if arm == arms.Ours && round == 0 {
					synctest.Wait()
					most.Raise(kept.Entries(manager.Parts()...))
				}
			})
			time.Sleep(soakRest)
			forgetEvents(t, server)
			require.Empty(t, manager.Waits())
			server.Forget()
			synctest.Wait()
			now, err := kept.Take(manager.Parts()...)
			require.NoError(t, err)
			after = append(after, now)
			t.Logf("%s, round %d of %d: heap %.2f MiB, %d goroutines, %d series, %d entries, %d of them ours", arm, round+1, rounds,
				float64(now.Heap)/(1<<20), now.Goroutines, now.Series.Sum(""), now.Entries.Sum(""), now.Entries.Sum(kept.Project))
		}
		tr.End()
		manager.End()
	})
	return after, most
}

// named is the name of the ith of a round: of every second one, it comes back in the next.
func named(what string, i, round int) string {
	if i%2 == 1 {
		return fmt.Sprint(what, "-", i, "-of-", round)
	}
	return fmt.Sprint(what, "-", i)
}

// troubles come in the first rounds, and then in one of troubledEvery, so that there are records, holds, waits, proofs,
// verdicts on nodes and evictions to forget: of an owner whose name comes back, and of one whose name does not.
func troubles(round int) []schedule.Step {
	steps := []schedule.Step{
		{For: 10 * time.Second, Action: schedule.LostAnswer, Target: "pods"},
		{At: 22 * time.Second, For: 5 * time.Second, Action: schedule.LostAnswer, Target: "jobs"},
		{At: 22 * time.Second, For: 10 * time.Second, Action: schedule.SlowReads, Target: "jobs", Delay: 3 * time.Second}, // What became of them is known late.
		{At: 5 * time.Second, For: 20 * time.Second, Action: schedule.Taint, N: 0},
		{At: 10 * time.Second, Action: schedule.Expire, Target: "pods"},
		{At: 12 * time.Second, For: 10 * time.Second, Action: schedule.Hold, Target: "pods"},
		{At: 80 * time.Second, For: 15 * time.Second, Action: schedule.Hold, Target: "pods"},
		{At: 90 * time.Second, For: 20 * time.Second, Action: schedule.Broken, Target: "pods", N: 1},
		{At: 100 * time.Second, For: 75 * time.Second, Action: schedule.KillNode, N: 1},
	}
	for i := range 2 {
		deleting := i + 2 // Those that were refused may have no pods yet.
		steps = append(steps,
			schedule.Step{At: time.Millisecond, For: 20 * time.Second, Action: schedule.Webhook, Target: named("ReplicationController", i, round)},
			schedule.Step{At: 2 * time.Millisecond, For: 20 * time.Second, Action: schedule.Refuse, Target: named("ReplicaSet", i, round)},
			schedule.Step{At: 81 * time.Second, Action: schedule.DeletePod, Target: named("ReplicationController", deleting, round)},
			schedule.Step{At: 82 * time.Second, Action: schedule.Scale, Target: named("ReplicaSet", deleting, round)},
			schedule.Step{At: 82 * time.Second, Action: schedule.Scale, Target: named("StatefulSet", deleting, round)},
			schedule.Step{At: 82 * time.Second, Action: schedule.Roll, Target: named("DaemonSet", deleting, round)},
		)
	}
	return steps
}

// Upstream keeps two series of each StatefulSet that ever was, and so do we.
func TestSeriesOfStatefulSetsThatAreGone(t *testing.T) {
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				legacyregistry.Reset()
				gone := schedule.Owner{Kind: "StatefulSet", Name: "gone", Replicas: 2}
				server, _, tr, _ := start(t, arm, schedule.Schedule{Nodes: 2, Owners: []schedule.Owner{gone}})
				time.Sleep(time.Minute)
				tr.Remove(gone)
				time.Sleep(soakRest)
				server.Look(func(truth model.Truth) {
					require.Empty(t, truth.List(model.StatefulSets))
					require.Empty(t, truth.List(model.Pods))
				})
				families, err := legacyregistry.DefaultGatherer.Gather()
				require.NoError(t, err)
				left := map[string]int{}
				for _, family := range families {
					for _, series := range family.GetMetric() {
						if slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == gone.Name }) {
							left[family.GetName()]++
						}
					}
				}
				require.Equal(t, map[string]int{"statefulset_controller_statefulset_max_unavailable": 1, "statefulset_controller_statefulset_unavailable_replicas": 1}, left)
			})
		})
	}
}

// forgotten are what there was something of to forget, or the test tests nothing.
var forgotten = []string{
	"rvtracker.ownerTable.owners", "rvtracker.line.heap", "rvtracker.Controller.demands",
	"consistencystore.unsettledWrites.owners", "consistencystore.unsettledWrites.settling",
	"evictionguard.nodeChecks.checks", "nodebreaker.passState.dead",
}

// makeAndRemove makes the owners and namespaces of a round, has them run, and removes them.
func makeAndRemove(tr *traffic.Traffic, f *faults.Faults, jobs, round int, look func()) {
	var owners []schedule.Owner
	namespaces := map[string][]schedule.Owner{}
	add := func(kind string, n int, namespace string) {
		for i := range n {
			o := schedule.Owner{Kind: kind, Name: named(fmt.Sprint(kind, namespace), i, round), Namespace: namespace, Replicas: 1, Short: true}
			tr.Make(o)
			if namespace == "" {
				owners = append(owners, o)
			} else {
				namespaces[namespace] = append(namespaces[namespace], o)
			}
		}
	}
	if round < soakRounds || round%troubledEvery == 0 {
		for _, step := range troubles(round) {
			tr.After(step.At, func() { _ = tr.Do(step) || f.Do(step, tr.After) })
		}
	}
	kinds := slices.Sorted(maps.Keys(traffic.Kinds))
	for i := range max(1, jobs/jobsPerNamespace) {
		name := named("namespace", i, round)
		tr.MakeNamespace(name)
		for _, kind := range kinds {
			add(kind, 2, name)
		}
	}
	for _, kind := range kinds {
		if kind == "Job" {
			add(kind, jobs, "")
		} else {
			add(kind, max(4, jobs/jobsPerOther), "")
		}
	}
	for range soakWork / lookEvery {
		time.Sleep(lookEvery)
		look()
	}
	for _, o := range owners {
		tr.Remove(o)
	}
	for name, inside := range namespaces {
		tr.RemoveNamespace(name, inside)
	}
}

// forgetEvents removes the events, as the apiserver does after an hour, and sees that nothing else is left.
func forgetEvents(t *testing.T, server *model.Server) {
	var events []model.Object
	server.Look(func(truth model.Truth) {
		events = truth.List(model.Events)
		for _, r := range append(slices.Collect(maps.Values(traffic.Kinds)), model.Pods, model.Revisions, model.Namespaces) {
			require.Empty(t, truth.List(r), r.Resource)
		}
	})
	for _, e := range events {
		server.Delete(model.Events, e.GetNamespace(), e.GetName(), new(int64(0)))
	}
}

// bounded are entries of caches, not of objects: there are no more of them than of what comes after.
var bounded = map[string]string{
	kept.Project + "rvtracker.Controller.demands":              kept.Project + "rvtracker.Controller.list",
	kept.Project + "rvtracker.Controller.busy":                 kept.Project + "rvtracker.Controller.list",
	kept.Project + "rvtracker.Controller.blocked":              kept.Project + "rvtracker.Controller.list",
	kept.Project + "transport.Watches.ends":                    kept.Project + "transport.Watches.open",
	kept.Project + "transport.Watches.expired":                 kept.Project + "transport.Watches.open",
	kept.Project + "consistencystore.unsettledWrites.settling": kept.Project + "rvtracker.Controller.list",
	kept.Project + "freshness.resource.fences":                 kept.Project + "freshness.Prover.resources",
}

// more is what is kept after a round in excess of what was after the second, by name; for what is not ours, and for the
// series, in excess of the most by which stock's grew.
func more(after, stock []kept.Snapshot, round int, counts func(kept.Snapshot) kept.Counts) kept.Counts {
	over := counts(after[round]).Over(counts(after[1]))
	for name, n := range over {
		most := 0
		if limit, ok := bounded[name]; ok {
			most = counts(after[round])[limit]
		} else if !strings.HasPrefix(name, kept.Project) {
			for _, s := range stock {
				most = max(most, counts(s)[name]-counts(stock[1])[name])
			}
		}
		if n <= most {
			delete(over, name)
		}
	}
	return over
}

// What is made and removed leaves nothing behind: after each round there are as many goroutines, series and entries as after
// the second one, or no more than stock's have grown by, and the heap has grown no more than stock's.
func TestMemoryComesBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	jobs := int(number(t, "SOAK", soakJobs))
	rounds := max(soakRounds, jobs/soakRound)
	stock, _ := soak(t, arms.Stock, jobs, rounds)
	ours, most := soak(t, arms.Ours, jobs, rounds)
	for _, name := range forgotten {
		require.Positive(t, most[kept.Project+name], "%s was never in use", name)
	}
	base := ours[1]
	t.Run("goroutines", func(t *testing.T) {
		for i, s := range ours[2:] {
			assert.LessOrEqual(t, s.Goroutines, base.Goroutines, "after round %d", i+3)
		}
	})
	for name, counts := range map[string]func(kept.Snapshot) kept.Counts{
		"series":  func(s kept.Snapshot) kept.Counts { return s.Series },
		"entries": func(s kept.Snapshot) kept.Counts { return s.Entries },
	} {
		t.Run(name, func(t *testing.T) {
			for round := 2; round < rounds; round++ {
				assert.Empty(t, more(ours, stock, round, counts), "after round %d", round+1)
			}
		})
	}
	t.Run("heap", func(t *testing.T) {
		// What events were sent of lately is remembered, up to a number. In a long run it is reached by the middle of it.
		middle, last := rounds/2-1, rounds-1
		grown := func(rounds []kept.Snapshot) int { return int(rounds[last].Heap) - int(rounds[middle].Heap) }
		removed := jobs / rounds * (last - middle)
		t.Logf("bytes that the heap grew by for each Job that was removed since round %d: stock %d, ours %d", middle+1, grown(stock)/removed, grown(ours)/removed)
		assert.LessOrEqual(t, grown(ours), max(0, grown(stock))+keptNoise+keptMore*removed, "bytes that the heap grew by")
	})
}
