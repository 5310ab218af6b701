// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

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
