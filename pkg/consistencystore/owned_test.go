// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// countingIndexer counts the objects that are read from it.
type countingIndexer struct {
	*indexer
	read int
}

func (i *countingIndexer) ByIndex(name, value string) ([]any, error) {
	items, err := i.Indexer.ByIndex(name, value)
	i.read += len(items)
	return items, err
}

func (i *countingIndexer) List() []any {
	items := i.Indexer.List()
	i.read += len(items)
	return items
}

// theirIndex is that of the controller of ReplicaSets (pkg/controller/replicaset/replica_set.go).
const theirIndex = "controllerUID"

func byTheirKey(any) ([]string, error) { return []string{"their key"}, nil }

func noIndex(any) ([]string, error) { return nil, nil }

// beside returns the store of a controller whose caches of ReplicaSets and ControllerRevisions have two of the owner "a", and so many of others in its namespace,
// besides some in another.
func beside(tb testing.TB, name string, others int) (*Store, *countingIndexer) {
	of := func(namespace string, n int, uid types.UID) metav1.ObjectMeta {
		name := fmt.Sprint(uid, "-", n)
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), ResourceVersion: "10",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "set", UID: uid}, setKind)}}
	}
	all := []metav1.ObjectMeta{of("ns", 0, "a"), of("ns", 1, "a"), of("other", 2, "a"), {Namespace: "ns", Name: "orphan", UID: "orphan", ResourceVersion: "10"}}
	for i := range others {
		all = append(all, of("ns", i%10, types.UID(fmt.Sprint("b", i/10))))
	}
	items := &countingIndexer{indexer: &indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, theirIndex: byTheirKey, history.ControllerRevisionControllerIndex: byTheirKey,
	}), "20"}}
	resource := revisionResource
	if name == deploymentStore {
		resource = replicaSetResource
	}
	for _, meta := range all {
		var err error
		if resource == replicaSetResource {
			err = items.Add(&apps.ReplicaSet{ObjectMeta: meta})
		} else {
			err = items.Add(&apps.ControllerRevision{ObjectMeta: meta})
		}
		require.NoError(tb, err)
	}
	store := newStore(rvtracker.New(rvtracker.Options{}), name, map[schema.GroupResource]consistency.LastSyncRVGetter{
		resource: items, pods: &indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{controller.PodControllerIndex: noIndex}), "20"},
	})
	store.ctx, store.prover = tb.Context(), &caches{}
	return store, items
}

// What a reconcile reads to remember what its owner has is the owner's: in a namespace with many others it costs no more. Both controllers of revisions have one cache.
func TestAViewReadsWhatItsOwnerHas(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "a"}
	for name, tc := range map[string]struct {
		owner    metav1.Object
		kind     string
		resource schema.GroupResource
	}{
		deploymentStore:  {&apps.Deployment{ObjectMeta: meta}, "Deployment", replicaSetResource},
		daemonSetStore:   {&apps.DaemonSet{ObjectMeta: meta}, "DaemonSet", revisionResource},
		statefulSetStore: {&apps.StatefulSet{ObjectMeta: meta}, "StatefulSet", revisionResource},
	} {
		t.Run(name, func(t *testing.T) {
			store, items := beside(t, name, 1000)
			newStore(rvtracker.New(rvtracker.Options{}), "another", store.caches)
			v := store.View(tc.owner, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: tc.kind}).(*view)
			require.Equal(t, 2, v.owned[tc.resource].number)
			require.Equal(t, 2, items.read)
			require.True(t, v.owned[tc.resource].unchanged())
			require.Equal(t, 4, items.read)
		})
	}
}

// What a reconcile of a Deployment adds to stock in a namespace with many ReplicaSets of others.
func BenchmarkViewBesideOthers(b *testing.B) {
	for _, others := range []int{10, 10000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			store, _ := beside(b, deploymentStore, others)
			d := &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "a"}}
			b.ReportAllocs()
			for b.Loop() {
				store.View(d, deploymentKind)
			}
		})
	}
}
