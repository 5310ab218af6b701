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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// unseenRun has a store whose caches are at version 5, with a set or Deployment that has written at 7.
type unseenRun struct {
	*Store
	owner            types.NamespacedName
	resource         schema.GroupResource
	informer, owners cache.Store
	woken            []time.Duration
}

func startUnseen(t *testing.T, controller string) *unseenRun {
	r := &unseenRun{owner: types.NamespacedName{Namespace: "ns", Name: "owner"}, resource: goesOn[controller], informer: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	tracker := rvtracker.New(rvtracker.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go tracker.Run(ctx)
	synctest.Wait()
	owners, _ := meta.UnsafeGuessKindToResource(kinds[controller])
	if r.owners = r.informer; owners.GroupResource() != r.resource {
		r.owners = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	r.Store = newStore(tracker, controller, map[schema.GroupResource]consistency.LastSyncRVGetter{r.resource: r.informer, owners.GroupResource(): r.owners})
	r.ctx = ctx
	began := time.Now()
	r.OnReady(func(string) { r.woken = append(r.woken, time.Since(began)) })
	r.at("5")
	r.made("uid")
	require.NoError(t, r.EnsureReady(r.owner))
	r.Wrote(r.owner, "uid", r.resource, metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: "uid", ResourceVersion: "7"}, rvtracker.Sent{})
	return r
}

// at has the cache at a version, by a change of another object.
func (r *unseenRun) at(version string) {
	_ = r.informer.Add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", ResourceVersion: version}})
}

// made has the cache show the owner by that UID.
func (r *unseenRun) made(uid types.UID) {
	_ = r.owners.Add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: uid, ResourceVersion: "5"}})
}

// tries says whether the store lets a write of an object through.
func (r *unseenRun) tries(method, name, version string) bool {
	there, err := r.Withholds(r.owner, "uid", transport.Write{Method: method, Resource: r.resource}, func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, ResourceVersion: version}
	})
	return err == nil && !there
}

func TestReconcilesGoOnThoughAnOwnWriteIsNotSeen(t *testing.T) {
	for controller, refused := range map[string][][3]string{
		deploymentStore:            {{http.MethodPut, "owner", "5"}, {http.MethodPut, "owner", "6"}},
		replicationControllerStore: {{http.MethodPut, "owner", "5"}},
		daemonSetStore:             {{http.MethodPost, "next", ""}, {http.MethodPut, "owner", "5"}, {http.MethodDelete, "", ""}},
		statefulSetStore:           {{http.MethodPost, "next", ""}},
	} {
		t.Run(controller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startUnseen(t, controller)
				for _, w := range refused {
					require.True(t, r.tries(w[0], w[1], w[2]), "the reconcile that has written it writes on")
				}
				require.NoError(t, r.EnsureReady(r.owner), "repair goes on")
				require.True(t, r.SeenOwnWrites(r.owner))
				require.Empty(t, rowsOf(r.Waits))
				if r.resource == revisionResource {
					there, err := r.Withholds(r.owner, "uid", transport.Write{Method: http.MethodPost, Resource: r.resource}, func() metav1.ObjectMeta { return metav1.ObjectMeta{Name: "owner"} })
					require.NoError(t, err)
					require.True(t, there, "the revision is known to be there")
				} else {
					require.True(t, r.tries(http.MethodPut, "owner", "7") && r.tries(http.MethodPut, "owner", "8"), "what was read from the server is written")
				}
				for _, w := range refused {
					require.False(t, r.tries(w[0], w[1], w[2]), w)
				}
				_, err := r.Withholds(r.owner, "uid", transport.Write{Method: http.MethodPut, Resource: pods}, nil)
				require.NoError(t, err, "other resources do not matter")
				waits := rowsOf(r.Waits)
				require.Len(t, waits, 1)
				require.Equal(t, stalenessz.ForUnseen, waits[0].Reason)
				time.Sleep(10 * time.Second)
				require.NoError(t, r.EnsureReady(r.owner))
				r.at("7")
				synctest.Wait()
				require.Equal(t, []time.Duration{10 * time.Second}, r.woken)
				require.Empty(t, rowsOf(r.Waits))
				require.NoError(t, r.EnsureReady(r.owner))
				for _, w := range refused {
					require.True(t, r.tries(w[0], w[1], w[2]), "the cache shows the write")
				}
			})
		})
	}
}

// A reconcile that has read its object before the event came does not send what the server would refuse.
func TestAWriteIsWithheldIfItsReconcileBeganTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startUnseen(t, deploymentStore)
		require.NoError(t, r.EnsureReady(r.owner))
		r.at("7")
		require.False(t, r.tries(http.MethodPut, "owner", "5"))
		synctest.Wait()
		require.Equal(t, []time.Duration{0}, r.woken, "it is read again")
	})
}

func TestAWriteIsNotWithheldForEver(t *testing.T) {
	for name, c := range map[string]struct {
		forgets func(*unseenRun)
		woken   []time.Duration
	}{
		"the cache never shows it": {func(*unseenRun) {}, []time.Duration{rvtracker.OwnerLimits.Stale}},
		"the owner is gone":        {func(r *unseenRun) { r.Clear(r.owner, "") }, nil},
		"the term of leadership ends": {func(r *unseenRun) {
			ctx, cancel := context.WithCancel(r.ctx)
			r.ctx = ctx
			cancel()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startUnseen(t, daemonSetStore)
				require.NoError(t, r.EnsureReady(r.owner))
				c.forgets(r)
				withheld := !r.tries(http.MethodPost, "next", "")
				require.Equal(t, name != "the owner is gone", withheld)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, c.woken, r.woken)
				require.True(t, r.tries(http.MethodPost, "next", ""))
				require.Empty(t, rowsOf(r.Waits))
			})
		})
	}
}

func TestAWriteIsNotWithheldForAnotherOwnerOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startUnseen(t, daemonSetStore)
		require.NoError(t, r.EnsureReady(r.owner))
		require.False(t, r.tries(http.MethodPost, "next", ""))
		require.Len(t, rowsOf(r.Waits), 1)
		r.made("another")
		require.NoError(t, r.EnsureReady(r.owner))
		require.True(t, r.tries(http.MethodPost, "next", ""))
		synctest.Wait()
		require.Empty(t, rowsOf(r.Waits))
	})
}
