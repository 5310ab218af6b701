// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// What the micro-benchmarks run allocates no more than it did, and no more than upstream's store: CI judges counts, not times.
func TestAllocations(t *testing.T) {
	const runs = 1000
	t.Run("event", func(t *testing.T) {
		tracker := New(Options{})
		tracker.running = true
		c := tracker.ForController("c", map[schema.GroupResource]Store{pods: &hookedStore{}}, func(types.NamespacedName) {})
		rvs := benchRVs(123456789, 2*(runs+1))
		for _, waiting := range [][]types.NamespacedName{nil, benchNames(2000)} {
			for _, n := range waiting {
				c.WroteAt(n, "u", pods, "999999999999")
				_ = c.EnsureReady(n)
			}
			require.Zero(t, testing.AllocsPerRun(runs, func() {
				c.sources[pods].observe(rvs[0])
				rvs = rvs[1:]
			}), "%d owners wait for a later one", len(waiting))
		}
	})
	for _, pending := range []int{0, 1, 64} {
		t.Run(fmt.Sprintf("ready owner, %d others pending", pending), func(t *testing.T) {
			fresh, _ := benchStores("5")
			for _, n := range benchNames(pending) {
				fresh.WroteAt(n, "u", pods, "10")
			}
			idle := types.NamespacedName{Namespace: "kube-system", Name: "idle-daemonset"}
			require.Zero(t, testing.AllocsPerRun(runs, func() { require.NoError(t, fresh.EnsureReady(idle)) }))
		})
	}
	t.Run("write and its event", func(t *testing.T) {
		const name = "owner"
		of := func(store *hookedStore, s benchStore) float64 {
			rvs := benchRVs(123456789, runs+1)
			return testing.AllocsPerRun(runs, func() {
				s.WroteAt(types.NamespacedName{Name: name}, "u", pods, rvs[0])
				store.apply(rvs[0])
				require.NoError(t, s.EnsureReady(types.NamespacedName{Name: name}))
				rvs = rvs[1:]
			})
		}
		ours := &hookedStore{}
		fresh := New(Options{}).ForController("c", map[schema.GroupResource]Store{pods: ours}, func(types.NamespacedName) {})
		require.LessOrEqual(t, of(ours, fresh), 1.0, "upstream's takes 3")
		upstreams := &hookedStore{}
		require.GreaterOrEqual(t, of(upstreams, consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{pods: upstreams})), 3.0)
	})
}
