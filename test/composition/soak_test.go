// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const (
	// soakOwners are made and removed in a round, unless SOAK says how many; as many rounds are run.
	soakOwners = 100
	soakRounds = 4
	// soakRate is at how many owners a second the controllers' client rate limiters finish one.
	soakRate = 2
	// soakRest is after a round, past all that is kept for a while.
	soakRest = 15 * time.Minute
	// keptMore is what ours may keep of a removed owner more than stock, and keptNoise besides, in bytes.
	keptMore  = 64
	keptNoise = 1 << 18
)

// kept is what a process has after a round in which nothing is left over.
type kept struct {
	heap       uint64 // bytes
	goroutines int
}

// soak makes and removes owners in rounds, half of them under names that come back, and returns what is kept after
// each.
func soak(t *testing.T, arm arms.Arm, owners int) (after []kept) {
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		tr := traffic.Start(server, schedule.Schedule{Nodes: 3})
		server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Monitor: true})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for round := range soakRounds {
			var made []schedule.Owner
			for i := range owners {
				kind := []string{"Job", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet"}[i%5]
				name := fmt.Sprint("owner-", i)
				if i%2 == 1 {
					name = fmt.Sprint("owner-", i, "-of-", round)
				}
				made = append(made, schedule.Owner{Kind: kind, Name: name, Replicas: 1})
				tr.Make(made[i])
			}
			time.Sleep(time.Duration(owners)*time.Second/soakRate + 2*time.Minute)
			for _, o := range made {
				tr.Remove(o)
			}
			time.Sleep(soakRest)
			var events []model.Object // The apiserver forgets them after an hour.
			server.Look(func(truth model.Truth) {
				events = truth.List(model.Events)
				for _, r := range []*model.Resource{model.Pods, model.Revisions, model.Jobs, model.StatefulSets} {
					require.Empty(t, truth.List(r), r.Resource)
				}
			})
			for _, e := range events {
				server.Delete(model.Events, e.GetNamespace(), e.GetName(), new(int64(0)))
			}
			require.Empty(t, manager.Waits())
			server.Forget()
			synctest.Wait()
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			after = append(after, kept{heap: m.HeapAlloc, goroutines: runtime.NumGoroutine()})
		}
		tr.End()
		manager.Stop()
	})
	return after
}

// What is made and removed leaves nothing behind: as many goroutines as before, and a heap that grows no more than
// stock's does, whose event recorders remember what they have told of lately.
func TestMemoryComesBack(t *testing.T) {
	owners := int(number(t, "SOAK", soakOwners))
	after := map[arms.Arm][]kept{}
	grown := map[arms.Arm]int{}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		rounds := soak(t, arm, owners)
		first, last := rounds[1], rounds[soakRounds-1]
		after[arm], grown[arm] = rounds, int(last.heap)-int(first.heap)
		t.Logf("%s: %+v: %d bytes an owner that was removed", arm, rounds, grown[arm]/(owners*(soakRounds-2)))
	}
	require.LessOrEqual(t, grown[arms.Ours], grown[arms.Stock]+keptNoise+keptMore*owners*(soakRounds-2))
	require.LessOrEqual(t, after[arms.Ours][soakRounds-1].goroutines, after[arms.Ours][1].goroutines)
}
