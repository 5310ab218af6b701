// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/kept"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const handovers = 6

// handOver has one manager follow the other at a server, and returns what the process keeps after each.
func handOver(t *testing.T, arm arms.Arm) (after []kept.Snapshot) {
	synctest.Test(t, func(t *testing.T) {
		legacyregistry.Reset()
		server := model.New()
		tr := traffic.Start(server, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "daemon"}, {Kind: "ReplicaSet", Name: "set", Replicas: 5}}})
		server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
		for term := range handovers {
			manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Monitor: true, Namespaces: true})
			require.NoError(t, err)
			tr.Do(schedule.Step{Action: schedule.Roll, Target: "daemon", At: time.Duration(term) * time.Millisecond})
			time.Sleep(10 * time.Second) // In the middle of the rolling update.
			tr.Do(schedule.Step{Action: schedule.Scale, Target: "set", N: term % 2 * 5})
			time.Sleep(10 * time.Millisecond)
			manager.Stop()
			time.Sleep(soakRest)
			server.Forget()
			synctest.Wait()
			now, err := kept.Take()
			require.NoError(t, err)
			after = append(after, now)
			t.Logf("%s, term %d of %d: heap %.2f MiB, %d goroutines, %d series", arm, term+1, handovers, float64(now.Heap)/(1<<20), now.Goroutines, now.Series.Sum(""))
		}
		tr.End()
	})
	return after
}

// A term of leadership that has ended leaves as little behind as stock's, although the process goes on.
func TestHandoverLeavesNothing(t *testing.T) {
	stock, ours := handOver(t, arms.Stock), handOver(t, arms.Ours)
	last := handovers - 1
	assert.LessOrEqual(t, ours[last].Goroutines, ours[1].Goroutines+max(0, stock[last].Goroutines-stock[1].Goroutines), "goroutines")
	assert.Empty(t, more(ours, stock, last, func(s kept.Snapshot) kept.Counts { return s.Series }), "series")
	grown := func(terms []kept.Snapshot) int { return int(terms[last].Heap) - int(terms[1].Heap) }
	assert.LessOrEqual(t, grown(ours), max(0, grown(stock))+keptNoise, "bytes that the heap grew by")
}
