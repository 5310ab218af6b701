// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func TestHandledIsTheStoreWhereNothingMoreIsKnown(t *testing.T) {
	informer := cache.NewSharedIndexInformer(nil, nil, 0, nil)
	require.Equal(t, consistency.LastSyncRVGetter(informer.GetStore()), consistency.Handled(informer))
}
