// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

var deploymentStatus = transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "deployments"}, Subresource: "status"}

// A Deployment whose status cannot be written comes back after its queue has dropped it, after twice as long each time. A try that something else has caused is the queue's.
func TestAnOwnerThatItsQueueDropsComesBack(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), deploymentStore, nil)
		store.ctx = t.Context()
		queue := make(chan string, 1)
		store.OnReady(func(key string) { queue <- key })
		fails := func() (left bool) {
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, deploymentStatus)
			return store.Leaves("ns/owner")
		}
		for range givenUpAfter - 1 {
			require.False(t, fails(), "the queue tries it again")
		}
		time.Sleep(2 * longestPause)
		require.Empty(t, queue)

		require.False(t, fails(), "the queue drops it")
		dropped := time.Now()
		pause := statusRetry << (givenUpAfter - 1)
		for range 2 {
			require.Equal(t, "ns/owner", <-queue)
			require.Equal(t, pause, time.Since(dropped))
			require.True(t, fails(), "the queue would begin anew")
			dropped = time.Now()
			pause *= 2
		}
		time.Sleep(time.Minute)
		require.False(t, fails(), "as on stock, the queue begins anew after an event")
		dropped = time.Now()
		require.Equal(t, "ns/owner", <-queue)
		require.Equal(t, pause, time.Since(dropped), "since the last failure")
		require.True(t, fails())

		require.NoError(t, store.EnsureReady(owner))
		store.Recorded(owner, deploymentStatus)
		time.Sleep(2 * longestPause)
		require.Empty(t, queue, "nothing fails any more")
		synctest.Wait()
		require.Empty(t, store.dropped)
	})
}

// An owner that is deleted does not come back.
func TestAnOwnerThatItsQueueDropsIsDeleted(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), deploymentStore, nil)
		store.ctx = t.Context()
		store.OnReady(func(key string) { t.Error("woken though it is gone:", key) })
		for range givenUpAfter {
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, deploymentStatus)
			store.Leaves("ns/owner")
		}
		require.Len(t, store.dropped, 1)
		store.Clear(owner, "")
		require.Empty(t, store.dropped)
		time.Sleep(2 * longestPause)
	})
}
