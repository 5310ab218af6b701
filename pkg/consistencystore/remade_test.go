// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// An owner that is deleted while an action of it is put off leaves the page once the cache shows that, though the wait goes on. One made again under its name
// has waited since it asked itself.
func TestAnOwnerThatIsGoneDoesNotWait(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "owner"}
	as := func(uid types.UID) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: uid, ResourceVersion: "5"}}
	}
	for ended, after := range map[bool]time.Duration{false: 500 * time.Millisecond, true: 5 * time.Second} {
		for uid, again := range map[types.UID]bool{"first": false, "second": true} {
			t.Run(fmt.Sprintf("the wait has ended %t, made again %t", ended, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					own := cache.NewStore(cache.MetaNamespaceKeyFunc)
					reached := version("5")
					store := newStore(rvtracker.New(rvtracker.Options{}), deploymentStore, map[schema.GroupResource]consistency.LastSyncRVGetter{appsv1.Resource("deployments"): own, pods: &reached})
					store.ctx, store.prover = t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}}
					require.NoError(t, own.Add(as("first")))
					defer time.Sleep(time.Minute) // The waits end.
					require.Error(t, store.ProveFresh(consistency.WithOwner(t.Context(), store, name, "first"), pods))
					began := time.Now()
					require.Len(t, rowsOf(store.Waits), 1)
					time.Sleep(after)
					require.Equal(t, ended, store.held.actionOf(name) == nil)
					require.NoError(t, own.Add(as(uid)))
					require.Error(t, store.ProveFresh(consistency.WithOwner(t.Context(), store, name, uid), pods))
					if again {
						began = time.Now()
					}
					require.Equal(t, began, rowsOf(store.Waits)[0].Since)
					require.NoError(t, own.Delete(as(uid)))
					require.Empty(t, rowsOf(store.Waits))
					require.NotNil(t, store.held.actionOf(name))
				})
			})
		}
	}
}

// That a lagging cache has what the server had when an action of the owner before was put off is not enough for it either.
func TestAnOwnerMadeAgainWaitsForACacheThatLags(t *testing.T) {
	for uid, waits := range map[types.UID]bool{"first": false, "second": true} {
		t.Run(string(uid), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := version("5")
				store := passStore(t.Context(), &staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}}}, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
				asks := func(uid types.UID) error {
					return store.ProveFresh(consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, uid), pods)
				}
				defer time.Sleep(time.Minute) // The waits end.
				require.Error(t, asks("first"))
				time.Sleep(2 * time.Second)
				require.Equal(t, waits, asks(uid) != nil)
			})
		})
	}
}

// An owner that was made again under its name waits for no write of the one before, unless stock does. What a cache shows that went back was there before the owner: the owner
// waits for its writes.
func TestAnOwnerMadeAgainDoesNotWaitForEarlierWrites(t *testing.T) {
	const before, after = "2", "20" // the writes
	for name, c := range map[string]struct {
		controller, own     string
		written, deleted    bool
		cachedAt, cachedUID string
		ready               bool
	}{
		"a Deployment":                                  {deploymentStore, "deployments", true, false, after, "another", true},
		"a Deployment, not made again":                  {deploymentStore, "deployments", true, false, after, "uid", false},
		"a Deployment, as it was before":                {deploymentStore, "deployments", true, false, before, "another", false},
		"a StatefulSet, of which stock waits for pods":  {statefulSetStore, "statefulsets", true, false, after, "another", false},
		"a StatefulSet's deletion":                      {statefulSetStore, "statefulsets", true, true, after, "another", true},
		"a StatefulSet's deletion, without a version":   {statefulSetStore, "statefulsets", false, true, after, "another", true},
		"a StatefulSet's deletion, as it was before":    {statefulSetStore, "statefulsets", true, true, before, "another", false},
		"a StatefulSet's, without a version, as before": {statefulSetStore, "statefulsets", false, true, before, "another", false},
	} {
		t.Run(name, func(t *testing.T) {
			own, podCache := cache.NewStore(cache.MetaNamespaceKeyFunc), cache.NewStore(cache.MetaNamespaceKeyFunc)
			store := newStore(rvtracker.New(rvtracker.Options{}), c.controller, map[schema.GroupResource]consistency.LastSyncRVGetter{{Group: "apps", Resource: c.own}: own, pods: podCache})
			owner, pod := types.NamespacedName{Namespace: "ns", Name: "owner"}, types.NamespacedName{Namespace: "ns", Name: "owner-0"}
			require.NoError(t, podCache.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod.Name, UID: "pod", ResourceVersion: "5"}}))
			require.NoError(t, own.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: types.UID(c.cachedUID), ResourceVersion: c.cachedAt}}))
			if c.written {
				store.WroteAt(owner, "uid", pods, "9")
			}
			if c.deleted {
				store.Deleted(owner, "uid", pods, pod, "pod")
			}
			err := store.EnsureReady(owner)
			require.Equal(t, c.ready, err == nil, "%v", err)
		})
	}
}
