// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// oneStore is a term with one store, without the monitor.
type oneStore struct{ *Store }

func (oneStore) Caches() []stalenessmonitor.Cache        { return nil }
func (oneStore) Objects(schema.GroupVersionResource) int { return 0 }
func (oneStore) Recorded() int                           { return 0 }

// Each kind of wait counts as an object that is not reconciled or as a disruptive action that is put off.
func TestLongestWaits(t *testing.T) {
	metrics.Register()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	for name, tc := range map[string]struct {
		wait   func(t *testing.T, s *Store)
		action bool
	}{
		"own write": {wait: func(t *testing.T, s *Store) {
			s.WroteAt(owner, "uid", nodes, "6")
			require.Error(t, s.EnsureReady(owner))
		}},
		"start of leadership": {wait: func(t *testing.T, s *Store) {
			s.held.holdStartOf(time.Now(), nodes)
			require.Error(t, s.EnsureReady(owner))
		}},
		"write whose answer was lost": {wait: func(t *testing.T, s *Store) {
			s.Unsettled(owner, "uid", nodes, transport.NeverRetried)
			require.Error(t, s.EnsureReady(owner))
		}},
		"deletion without a proof": {action: true, wait: func(t *testing.T, s *Store) {
			require.Error(t, consistency.ProveFresh(consistency.WithOwner(t.Context(), s, owner, "uid"), s, nodes))
		}},
		"eviction": {action: true, wait: func(_ *testing.T, s *Store) {
			guarded(s, &guard{{Object: "ns/pod", Resource: nodes, Since: time.Now()}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracker := rvtracker.New(rvtracker.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				go tracker.Run(ctx)
				store := newStore(tracker, "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: hookedStore{}, pods: hookedStore{}})
				prover := &script{nodes: down, release: make(chan struct{})}
				store.ctx, store.prover = t.Context(), prover
				synctest.Wait()
				page := &stalenessz.Page{}
				_, leading := page.WaitsNow()
				require.False(t, leading)
				page.Add(oneStore{store})
				now, leading := page.WaitsNow()
				require.True(t, leading)
				require.Equal(t, map[string]metrics.Waiting{"test": {}}, now.Longest, "nothing waits")

				tc.wait(t, store)
				synctest.Wait()
				time.Sleep(7 * time.Second)
				now, _ = page.WaitsNow()
				want := metrics.Waiting{Object: 7 * time.Second}
				if tc.action {
					want = metrics.Waiting{Action: 7 * time.Second}
				}
				require.Equal(t, map[string]metrics.Waiting{"test": want}, now.Longest)
				prover.answer(fresh)
				close(prover.release)
				cancel()
				synctest.Wait()
			})
		})
	}
}
