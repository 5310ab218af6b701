// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// successorRun has a store whose cache is at version 5 and has the owner with UID "uid".
type successorRun struct {
	*Store
	owner  types.NamespacedName
	owners cache.Store
	woken  []time.Duration
}

func startSuccessor(t *testing.T, controller string) *successorRun {
	r := &successorRun{owner: types.NamespacedName{Namespace: "ns", Name: "owner"}, owners: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	tracker := rvtracker.New(rvtracker.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go tracker.Run(ctx)
	synctest.Wait()
	r.Store = newStore(tracker, controller, nil)
	own, _ := r.ownResource()
	r.Store = newStore(tracker, controller, map[schema.GroupResource]consistency.LastSyncRVGetter{own: r.owners})
	r.ctx = ctx
	began := time.Now()
	r.OnReady(func(string) { r.woken = append(r.woken, time.Since(began)) })
	r.shows("uid", "5")
	require.NoError(t, r.EnsureReady(r.owner))
	return r
}

// shows has the cache show the owner by that UID.
func (r *successorRun) shows(uid types.UID, version string) {
	_ = r.owners.Add(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: uid, ResourceVersion: version}})
}

func TestAnUpdateOfAnOwnersSuccessorIsNotSent(t *testing.T) {
	status := transport.Write{Method: http.MethodPut, Resource: appsv1.Resource("daemonsets"), Subresource: "status"}
	object := metav1.ObjectMeta{Name: "owner", UID: "another", ResourceVersion: "9"}
	for name, c := range map[string]struct {
		what     func(*transport.Write, *metav1.ObjectMeta)
		ownerUID types.UID
		sent     bool
	}{
		"its successor's status":    {func(*transport.Write, *metav1.ObjectMeta) {}, "uid", false},
		"its successor":             {func(w *transport.Write, _ *metav1.ObjectMeta) { w.Subresource = "" }, "uid", false},
		"its own":                   {func(_ *transport.Write, o *metav1.ObjectMeta) { o.UID = "uid" }, "uid", true},
		"a request that has no UID": {func(_ *transport.Write, o *metav1.ObjectMeta) { o.UID = "" }, "uid", true},
		"an owner without a UID":    {func(*transport.Write, *metav1.ObjectMeta) {}, "", true},
		"another's":                 {func(_ *transport.Write, o *metav1.ObjectMeta) { o.Name = "other" }, "uid", true},
		"what it owns":              {func(w *transport.Write, _ *metav1.ObjectMeta) { w.Resource = pods }, "uid", true},
		"a patch":                   {func(w *transport.Write, _ *metav1.ObjectMeta) { w.Method = http.MethodPatch }, "uid", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startSuccessor(t, daemonSetStore)
				what, object := status, object
				c.what(&what, &object)
				there, err := r.Withholds(r.owner, c.ownerUID, what, func() metav1.ObjectMeta { return object })
				require.False(t, there)
				if c.sent {
					require.NoError(t, err)
					require.NoError(t, r.EnsureReady(r.owner))
					return
				}
				require.True(t, consistency.Parked(err), "its queue does not try again")
				require.EqualError(t, err, "daemonsets.apps ns/owner with UID uid was deleted, and the one that was made again under its name, with UID another, is not in the cache yet: it must not get the status of the other")
				require.Error(t, r.EnsureReady(r.owner), "it waits, as if it had been written")
				waits := rowsOf(r.Waits)
				require.Len(t, waits, 1)
				require.Equal(t, "own_writes", waits[0].Reason)
				time.Sleep(10 * time.Second)
				r.shows("another", "9")
				synctest.Wait()
				require.Equal(t, []time.Duration{10 * time.Second}, r.woken)
				require.NoError(t, r.EnsureReady(r.owner))
			})
		})
	}
}

// A ReplicationController's reconciles wait for no write to it. No more is asked for its status all the same.
func TestAReplicationControllersSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startSuccessor(t, replicationControllerStore)
		own, _ := r.ownResource()
		tries := func(uid types.UID, version string) error {
			_, err := r.Withholds(r.owner, "uid", transport.Write{Method: http.MethodPut, Resource: own, Subresource: "status"}, func() metav1.ObjectMeta {
				return metav1.ObjectMeta{Name: "owner", UID: uid, ResourceVersion: version}
			})
			return err
		}
		require.NoError(t, tries("uid", "5"))
		require.ErrorContains(t, tries("another", "9"), "was deleted")
		require.NoError(t, r.EnsureReady(r.owner))
		require.True(t, consistency.Parked(tries("uid", "5")), "the server would refuse it")
		require.Equal(t, stalenessz.ForUnseen, rowsOf(r.Waits)[0].Reason)
		r.shows("another", "9")
		synctest.Wait()
		require.Len(t, r.woken, 1)
		require.Empty(t, rowsOf(r.Waits))
	})
}

// A status that the server refuses has its owner come back where an action of it waits. That it is the successor's ends that.
func TestAnOwnerDoesNotComeBackForItsSuccessorsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startSuccessor(t, daemonSetStore)
		what := transport.Write{Method: http.MethodPut, Resource: appsv1.Resource("daemonsets"), Subresource: "status"}
		r.statuses = map[types.NamespacedName]*comeback{r.owner: {}}
		r.Failed(r.owner, what)
		require.True(t, r.refusals.open(r.owner))
		_, err := r.Withholds(r.owner, "uid", what, func() metav1.ObjectMeta {
			return metav1.ObjectMeta{Name: "owner", UID: "another", ResourceVersion: "9"}
		})
		require.Error(t, err)
		require.Empty(t, r.statuses)
		require.False(t, r.refusals.open(r.owner), "it counts as written")
	})
}
