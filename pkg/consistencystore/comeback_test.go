// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"runtime"
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

// withQueue returns the store of a controller, and what it puts on the controller's queue.
func withQueue(t *testing.T, controller string) (*Store, chan string) {
	store, queue := newStore(rvtracker.New(rvtracker.Options{}), controller, nil), make(chan string, 1)
	store.ctx = t.Context()
	store.OnReady(func(key string) { queue <- key })
	return store, queue
}

// A Deployment whose status cannot be written comes back after its queue has dropped it, after twice as long each time. A try that something else has caused is the queue's.
func TestAnOwnerThatItsQueueDropsComesBack(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store, queue := withQueue(t, deploymentStore)
		fails := func() (left bool) {
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, deploymentStatus)
			return store.Leaves("ns/owner", true)
		}
		for try := range givenUpAfter - 1 {
			require.False(t, fails(), "the queue tries it again")
			time.Sleep(statusRetry << try)
			require.Empty(t, queue, "it does")
		}
		require.False(t, fails(), "the queue drops it")
		began, dropped := time.Now().Add(-statusRetry*(1<<(givenUpAfter-1)-1)), time.Now()
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
		failed := time.Now()
		require.Equal(t, "ns/owner", <-queue)
		require.Equal(t, min(failed.Sub(began)+comebackAfter, longestPause), time.Since(failed), "the event's try does not count")
		require.True(t, fails())

		require.NoError(t, store.EnsureReady(owner))
		store.Recorded(owner, deploymentStatus)
		time.Sleep(2 * longestPause)
		require.Empty(t, queue, "nothing fails any more")
		synctest.Wait()
		require.Empty(t, store.comebacks)
	})
}

// Each try that an event causes doubles a queue's delay. An owner of which writes fail comes back when it has not been tried for as long as they have failed, and some seconds; where only the
// queue has it tried, that is never.
func TestAnOwnerDoesNotWaitForWhatEventsHaveDoneToItsQueue(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	for controller, comes := range map[string]bool{daemonSetStore: true, statefulSetStore: true, deploymentStore: true, replicaSetStore: true, replicationControllerStore: true,
		cronJob: true, "job": false, autoscaler: false, "resourcequota": false} {
		t.Run(controller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, queue := withQueue(t, controller)
				store.brief = controller == cronJob
				status := transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Resource: "owners"}, Subresource: "status"}
				fails := func() time.Time {
					require.NoError(t, store.EnsureReady(owner))
					store.Failed(owner, status)
					return time.Now()
				}
				began := fails()
				for range 14 {
					time.Sleep(time.Second)
					fails()
				}
				last := time.Now()
				if !comes {
					time.Sleep(2 * longestPause)
					require.Empty(t, queue)
					return
				}
				// The events are over. The queue would have it tried after 82 s, then after 164 s.
				require.Equal(t, "ns/owner", <-queue)
				require.LessOrEqual(t, time.Since(last), last.Sub(began)+comebackAfter)
				last = fails()
				require.Equal(t, "ns/owner", <-queue)
				require.Equal(t, last.Sub(began)+comebackAfter, time.Since(last))
				synctest.Wait()
				require.Empty(t, store.comebacks, "nothing is kept of it until it fails again")

				require.NoError(t, store.EnsureReady(owner))
				store.Recorded(owner, status)
				require.NoError(t, store.EnsureReady(owner))
				time.Sleep(longestPause)
				require.Empty(t, queue, "nothing fails any more")

				for try := range 15 {
					fails()
					time.Sleep(statusRetry << try)
					require.Empty(t, queue, "the queue has it tried")
				}
			})
		})
	}
}

// Writes that fail anew, after some have succeeded, do not wait for as long as those before.
func TestAnOwnerThatFailsAnewComesBackAsSoon(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store, queue := withQueue(t, deploymentStore)
		fails := func(every time.Duration) (began time.Time) {
			began = time.Now()
			for range 19 {
				require.NoError(t, store.EnsureReady(owner))
				store.Failed(owner, deploymentStatus)
				time.Sleep(every)
			}
			return began
		}
		fails(8 * time.Second)
		require.NoError(t, store.EnsureReady(owner))
		store.Recorded(owner, deploymentStatus)
		require.NoError(t, store.EnsureReady(owner))

		began := fails(time.Second)
		require.Equal(t, "ns/owner", <-queue)
		require.LessOrEqual(t, time.Since(began), 2*19*time.Second+comebackAfter)
	})
}

// An owner that is deleted does not come back.
func TestAnOwnerThatComesBackIsDeleted(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), deploymentStore, nil)
		store.ctx = t.Context()
		store.OnReady(func(key string) { t.Error("woken though it is gone:", key) })
		for range givenUpAfter {
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, deploymentStatus)
			store.Leaves("ns/owner", true)
		}
		require.Len(t, store.comebacks, 1)
		store.Clear(owner, "")
		require.Empty(t, store.comebacks)
		time.Sleep(2 * longestPause)
	})
}

// A queue counts all reconciles that failed: a revision that could not be made leaves its delay to the status that cannot be written once it is.
func TestAnOwnerComesBackWhoseQueueCountsOtherFailures(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store, queue := withQueue(t, daemonSetStore)
		revision := transport.Write{Method: http.MethodPost, Resource: schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}}
		status := transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "daemonsets"}, Subresource: "status"}
		for try := range 17 { // As the queue has it.
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, revision)
			time.Sleep(statusRetry << try)
		}
		for len(queue) > 0 {
			<-queue
		}
		require.NoError(t, store.EnsureReady(owner))
		store.Recorded(owner, revision)
		store.Failed(owner, status)
		for range 3 {
			failed := time.Now()
			require.Equal(t, "ns/owner", <-queue)
			require.LessOrEqual(t, time.Since(failed), time.Minute, "the queue would have it tried after 11 min")
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, status)
		}
	})
}

// A webhook that fails now and then has writes of one reconcile fail and succeed in turns. One pending comeback serves them all.
func TestComebacksOfWritesThatFailNowAndThenAreNotPiledUp(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		store, queue := withQueue(t, daemonSetStore)
		create := transport.Write{Method: http.MethodPost, Resource: schema.GroupResource{Resource: "pods"}}
		before := runtime.NumGoroutine()
		for range 500 {
			require.NoError(t, store.EnsureReady(owner))
			store.Recorded(owner, create)
			store.Failed(owner, create)
			time.Sleep(10 * time.Millisecond)
		}
		require.Empty(t, queue)
		require.Less(t, runtime.NumGoroutine(), before+5)
		failed := time.Now()
		require.Equal(t, "ns/owner", <-queue)
		require.LessOrEqual(t, time.Since(failed), comebackAfter)
	})
}
