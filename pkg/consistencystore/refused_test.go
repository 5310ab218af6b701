// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// An action that fails itself is tried again after a pause though its proof has come. Another write that fails, such as that of a finalizer, delays
// no action that is proven: upstream's would not wait for it either.
func TestOnlyAnActionThatFailsIsPausedOnceItIsProven(t *testing.T) {
	const proof = 3 * time.Second
	deletion := transport.Write{Method: http.MethodDelete, Resource: pods}
	finalizer := transport.Write{Method: http.MethodPatch, Resource: pods}
	for name, c := range map[string]struct {
		failed []transport.Write
		paused bool
	}{
		"a deletion":                  {[]transport.Write{deletion}, true},
		"a scale-down":                {[]transport.Write{{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "replicasets"}}}, true},
		"a deletion, and a finalizer": {[]transport.Write{deletion, finalizer}, true},
		"a finalizer":                 {[]transport.Write{finalizer}, false},
		"a creation":                  {[]transport.Write{{Method: http.MethodPost, Resource: pods}}, false},
		"a status":                    {[]transport.Write{{Method: http.MethodPut, Resource: nodes, Subresource: "status"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := slowCache{&busyCache{takes: proof, turn: make(chan struct{}, 1)}}
				store := newStore(rvtracker.New(rvtracker.Options{}), "job", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache})
				store.ctx, store.prover = t.Context(), cache
				queue := make(chan string, 9)
				store.OnReady(func(key string) { queue <- key })
				owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
				for range 6 { // over ten times as long as a proof takes
					time.Sleep(2 * proof)
					require.NoError(t, store.EnsureReady(owner))
					for _, what := range c.failed {
						store.Failed(owner, what)
					}
				}
				began := time.Now()
				require.Error(t, consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, pods))
				if !c.paused {
					require.Equal(t, "ns/owner", <-queue)
					require.InDelta(t, proof.Seconds(), time.Since(began).Seconds(), 0.1)
					return
				}
				time.Sleep(proof)
				says := ""
				store.held.each(func(_ types.NamespacedName, h *hold) { says = h.awaits() + ": " + h.why(h.proof) })
				require.Equal(t, "its next try: the last try failed; the pause between tries grows", says)
				require.Equal(t, "ns/owner", <-queue)
				require.Greater(t, time.Since(began), 5*proof)
			})
		})
	}
}

// An action that fails for the first time is tried again soon, though another write of its owner has failed long before, and it has waited since.
func TestAnActionThatFailsOncePausesBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		r.note(owner, transport.Write{Method: http.MethodPut, Resource: pods, Subresource: "status"})
		for range 4 {
			r.begin(owner)
			r.asks(owner)
			time.Sleep(time.Minute)
		}
		r.begin(owner)
		r.note(owner, transport.Write{Method: http.MethodDelete, Resource: pods})
		require.Positive(t, r.pauseAction(owner))
		require.LessOrEqual(t, r.pauseAction(owner), 2*firstPause)
		require.Equal(t, pods, r.failing(owner))
	})
}

// An action that has failed for hours is tried again within minutes.
func TestAnActionThatFailsForLongPausesForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		for range 20 {
			r.begin(owner)
			r.note(owner, transport.Write{Method: http.MethodDelete, Resource: pods})
			time.Sleep(10 * time.Minute)
		}
		r.begin(owner)
		r.note(owner, transport.Write{Method: http.MethodDelete, Resource: pods})
		require.Equal(t, longestActionPause, r.pauseAction(owner))
	})
}

// A reconcile in which a deletion failed, and others succeeded after it, delays the next one by nothing; nor does it end what others before it have.
func TestAnActionThatWasDoneAfterAllIsNotPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		owner, deletion := types.NamespacedName{Namespace: "ns", Name: "owner"}, transport.Write{Method: http.MethodDelete, Resource: pods}
		reconcile := func(succeeds bool) {
			r.begin(owner)
			time.Sleep(time.Second)
			r.note(owner, deletion)
			if succeeds {
				r.done(owner, deletion)
			}
			r.asks(owner)
		}
		pauses := func() bool {
			r.begin(owner)
			_, fails := r.actionFails(owner)
			return fails || r.pause(owner, time.Now()) || r.pauseAction(owner) > 0
		}
		reconcile(true)
		reconcile(true)
		require.False(t, pauses())
		r.asks(owner)
		require.False(t, pauses())
		require.Empty(t, r.of, "nothing has failed any more")
		for range 3 {
			reconcile(false)
		}
		reconcile(true)
		reconcile(false)
		require.True(t, pauses())
		require.Equal(t, 4, r.of[owner].tries)
	})
}

// A Deployment that a queue would have given up comes back when its action, which fails though it is proven, may be tried again. The page lists it until then.
func TestAGivenUpOwnerThatComesBackIsListed(t *testing.T) {
	owner, scaleDown := types.NamespacedName{Namespace: "ns", Name: "owner"}, transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "replicasets"}}
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), "deployment", nil)
		store.ctx = t.Context()
		queue := make(chan string, 1)
		store.OnReady(func(key string) { queue <- key })
		for range givenUpAfter + 1 {
			time.Sleep(2 * time.Second)
			store.refusals.wakes(owner)
			require.NoError(t, store.EnsureReady(owner))
			store.Failed(owner, scaleDown)
		}
		require.True(t, store.Leaves("ns/owner", true))
		began := time.Now()
		for range 2 {
			rows := rowsOf(store.Waits)
			require.Len(t, rows, 1)
			require.Equal(t, stalenessz.Wait{
				Controller: "deployment", Owner: "ns/owner", Resource: scaleDown.Resource, Since: began, Reason: stalenessz.ForAction,
				For: "its next try, to start other pods, or to scale a ReplicaSet down or delete it", Why: "the last try failed; the pause between tries grows",
			}, rows[0])
			time.Sleep(time.Second)
			require.True(t, store.Leaves("ns/owner", true), "it waits already")
		}
		require.Equal(t, "ns/owner", <-queue)
		require.Equal(t, 2*givenUpAfter*time.Second, time.Since(began), "for as long as its writes have failed")
		require.Empty(t, rowsOf(store.Waits))

		require.NoError(t, store.EnsureReady(owner))
		store.Failed(owner, scaleDown)
		require.True(t, store.Leaves("ns/owner", true))
		store.Clear(owner, "")
		require.Empty(t, rowsOf(store.Waits), "it is gone")
		time.Sleep(longestPause)
		require.Empty(t, queue)
	})
}

// A CronJob of which a write has failed is woken if it has waited for less time than after which its controller goes on by itself. Else it is left to the
// queue's backoff, and to its controller.
func TestAnOwnerThatWentOnIsLeftToTheBackoff(t *testing.T) {
	owner, creation := types.NamespacedName{Namespace: "ns", Name: "owner"}, transport.Write{Method: http.MethodPost, Resource: pods}
	for _, controller := range []string{cronJob, "job"} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(rvtracker.New(rvtracker.Options{}), controller, nil)
			store.ctx, store.brief = t.Context(), controller == cronJob
			woken := 0
			store.OnReady(func(string) { woken++ })
			wakes := func() bool {
				before := woken
				store.wake(owner)
				return woken > before
			}
			require.True(t, wakes(), "no write of it failed")
			store.Failed(owner, creation)
			require.Equal(t, controller != cronJob, wakes(), controller)
			require.NoError(t, store.EnsureReady(owner))
			store.refusals.asks(owner)
			require.True(t, wakes(), "it is reconciled, and waits at its end")
			time.Sleep(goesOnAfter - time.Millisecond)
			require.NoError(t, store.EnsureReady(owner))
			require.True(t, wakes())
			time.Sleep(time.Millisecond)
			require.Equal(t, controller != cronJob, wakes(), "%s went on", controller)
		})
	}
}

// A status that could not be written is tried again soon, also if another one has failed often earlier in the same wait, and was written at last.
func TestAStatusThatWasWrittenIsForgotten(t *testing.T) {
	whileAnActionWaits(t, func(store *Store, fails func(), woken func() time.Duration) {
		var last time.Duration
		for range 10 {
			fails()
			last = woken()
		}
		require.Greater(t, last, time.Second)
		store.Recorded(setOwner, setStatus)
		fails()
		require.Equal(t, statusRetry, woken())
	})
}

// A status that fails while it waits for its next try, as its owner came back for something else, waits from then on: it is not tried twice as often.
func TestAStatusThatFailsMeanwhileWaitsFromThenOn(t *testing.T) {
	whileAnActionWaits(t, func(_ *Store, fails func(), woken func() time.Duration) {
		for range 8 {
			fails()
			woken()
		}
		fails()
		time.Sleep(statusRetry << 7)
		fails()
		require.Equal(t, statusRetry<<8, woken())
	})
}

// An owner whose action has failed, and needs no more than that the owner is read again, is left to the reconcile that follows at once. Where none follows, as its controller
// returns no error, it is woken after the pause.
func TestAnOwnerThatIsNotReadAgainIsWokenAfterThePause(t *testing.T) {
	for _, again := range []bool{true, false} {
		t.Run(fmt.Sprint("read again: ", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := version("5")
				store := newStore(rvtracker.New(rvtracker.Options{}), daemonSetStore, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
				store.ctx = t.Context()
				var woken atomic.Int32
				store.OnReady(func(string) { woken.Add(1) })
				require.NoError(t, store.EnsureReady(setOwner))
				store.Failed(setOwner, transport.Write{Method: http.MethodDelete, Resource: pods})
				store.wakeAgain(setOwner)
				if again {
					require.NoError(t, store.EnsureReady(setOwner))
				}
				time.Sleep(firstPause - time.Millisecond)
				require.Zero(t, woken.Load())
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Equal(t, !again, woken.Load() == 1)
			})
		})
	}
}

var (
	setOwner  = types.NamespacedName{Namespace: "ns", Name: "owner"}
	setStatus = transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "daemonsets"}, Subresource: "status"}
)

// whileAnActionWaits calls f with the store of DaemonSets, of which one has an action that waits for a proof. fails has a reconcile of it fail to write its status, and
// woken returns how long it is until it comes back.
func whileAnActionWaits(t *testing.T, f func(store *Store, fails func(), woken func() time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), daemonSetStore, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
		store.ctx, store.prover, store.statuses = t.Context(), &script{nodes: down, release: make(chan struct{})}, map[types.NamespacedName]*comeback{}
		queue := make(chan string, 9)
		store.OnReady(func(key string) { queue <- key })
		proven, prove := context.WithCancel(t.Context())
		defer func() { prove(); synctest.Wait() }()
		store.await(t.Context(), setOwner, &putOff{hold: hold{resource: pods, proof: freshness.Proof{Outcome: freshness.Unknown}}}, func() bool {
			<-proven.Done()
			return true
		})
		f(store, func() {
			require.NoError(t, store.EnsureReady(setOwner))
			store.Failed(setOwner, setStatus)
		}, func() time.Duration {
			began := time.Now()
			require.Equal(t, "ns/owner", <-queue)
			return time.Since(began)
		})
	})
}

// An object that is made again under its name does not pause for what has failed for the one before.
func TestFailuresOfAnotherObjectOfItsNameDoNotMatter(t *testing.T) {
	for name, c := range map[string]struct {
		uid    types.UID
		pauses bool
	}{"the same": {"a", true}, "another": {"b", false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caches, _, _ := newCaches(t)
				store := newStore(rvtracker.New(rvtracker.Options{}), daemonSetStore, map[schema.GroupResource]consistency.LastSyncRVGetter{daemons: &caches.sets, pods: &caches.pods})
				store.ctx, store.prover = t.Context(), caches
				owner := types.NamespacedName{Namespace: "ns", Name: "set"}
				for range 3 {
					require.NoError(t, store.EnsureReady(owner))
					store.View(aSet("a", 3), setKind)
					store.Failed(owner, transport.Write{Method: http.MethodDelete, Resource: pods})
					time.Sleep(time.Second)
				}
				require.NoError(t, caches.sets.Replace([]any{aSet(c.uid, 1)}, "20"))
				require.NoError(t, store.EnsureReady(owner))
				store.View(aSet(c.uid, 1), setKind)
				require.Equal(t, c.pauses, store.refusals.pauseAction(owner) > 0)
			})
		})
	}
}
