// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// What event handlers keep of a cache is as old as the slowest of them is behind.
func TestHandledIsAsFarAsTheSlowestHandler(t *testing.T) {
	testHandled(t, 0, func(t *testing.T, h *handled) {
		store := h.informer.GetStore()
		all := consistency.Handled(startedInformer{observedInformer{h.informer, nil}, nil})
		h.add(t, 0)
		require.Empty(t, all.LastStoreSyncResourceVersion(), "nothing is known yet")
		h.start()
		require.NotEmpty(t, store.LastStoreSyncResourceVersion())
		require.Equal(t, store.LastStoreSyncResourceVersion(), all.LastStoreSyncResourceVersion())

		slow := h.add(t, 10*time.Second)
		require.Empty(t, all.LastStoreSyncResourceVersion(), "one has been told of nothing yet")
		time.Sleep(15 * time.Second)
		before := all.LastStoreSyncResourceVersion()
		require.Equal(t, store.LastStoreSyncResourceVersion(), before)
		h.server.changes(1)
		time.Sleep(5 * time.Second)
		require.NotEqual(t, before, store.LastStoreSyncResourceVersion())
		require.Equal(t, before, all.LastStoreSyncResourceVersion())
		time.Sleep(10 * time.Second)
		require.Equal(t, store.LastStoreSyncResourceVersion(), all.LastStoreSyncResourceVersion())

		h.server.changes(1)
		time.Sleep(5 * time.Second)
		require.NoError(t, h.informer.RemoveEventHandler(slow))
		require.Equal(t, store.LastStoreSyncResourceVersion(), all.LastStoreSyncResourceVersion())
		require.Equal(t, store, all.(interface{ Store() cache.Store }).Store())
	})
}

// A list has no order, and one after a restore is older than what came before: handlers know of it at its end.
func TestHandledKnowsNothingOfHalfAList(t *testing.T) {
	for name, c := range map[string]struct {
		rv   int
		pods []*corev1.Pod
	}{
		"relisted": {100, []*corev1.Pod{podAt("a", 99), podAt("b", 50)}},
		"restored": {7, []*corev1.Pod{podAt("a", 6), podAt("b", 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			testHandled(t, 0, func(t *testing.T, h *handled) {
				all := consistency.Handled(h.informer)
				h.add(t, 10*time.Second)
				h.start()
				time.Sleep(20 * time.Second)
				require.Equal(t, "10", all.LastStoreSyncResourceVersion())
				h.server.relist(c.rv, c.pods...)
				for {
					time.Sleep(time.Second)
					if h.informer.GetStore().LastStoreSyncResourceVersion() == strconv.Itoa(c.rv) {
						break
					}
				}
				began := time.Now()
				for all.LastStoreSyncResourceVersion() == "" {
					time.Sleep(time.Second)
				}
				require.Equal(t, strconv.Itoa(c.rv), all.LastStoreSyncResourceVersion())
				require.InDelta(t, 20, time.Since(began).Seconds(), 2, "two objects took 10 s each")

				late := h.add(t, 0)
				time.Sleep(time.Second)
				require.Equal(t, strconv.Itoa(c.rv), all.LastStoreSyncResourceVersion(), "a handler that is added after the list")
				require.True(t, late.HasSynced())
			})
		})
	}
}

func TestHandledIsTheStoreWhereNothingMoreIsKnown(t *testing.T) {
	informer := cache.NewSharedIndexInformer(nil, nil, 0, nil)
	require.Equal(t, consistency.LastSyncRVGetter(informer.GetStore()), consistency.Handled(informer))
}
