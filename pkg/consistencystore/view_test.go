// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

var (
	daemons = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	setKind = apps.SchemeGroupVersion.WithKind("DaemonSet")
)

// caches are an informer's stores of sets and pods, at versions of their own, and the prover of both.
type caches struct {
	sets, pods indexer
	proof      map[schema.GroupResource]freshness.Proof
	// meanwhile happens while a proof is made, which takes a while.
	meanwhile func()
	takes     time.Duration
}

// indexer is an informer's store whose version the test sets.
type indexer struct {
	cache.Indexer
	version string
}

func (i *indexer) LastStoreSyncResourceVersion() string { return i.version }

func aSet(uid types.UID, generation int64) *apps.DaemonSet {
	return &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: uid, Generation: generation}}
}

func aPod(name, version string, owner types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "set", UID: owner}, setKind)}}}
}

// newCaches has one set with two pods, seen at 20, and a pod of another set.
func newCaches(t *testing.T) (*caches, *Store, chan string) {
	podStore := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{controller.PodControllerIndex: func(obj any) ([]string, error) {
		pod := obj.(*v1.Pod)
		return []string{controller.PodControllerIndexKey(pod.Namespace, metav1.GetControllerOf(pod))}, nil
	}})
	c := &caches{sets: indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), "20"}, pods: indexer{podStore, "20"}}
	c.proof = map[schema.GroupResource]freshness.Proof{}
	require.NoError(t, c.sets.Add(aSet("a", 3)))
	for _, pod := range []*v1.Pod{aPod("1", "11", "a"), aPod("2", "20", "a"), aPod("3", "13", "b")} {
		require.NoError(t, c.pods.Add(pod))
	}
	store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{daemons: &c.sets, pods: &c.pods})
	store.ctx, store.prover = t.Context(), c
	queue := make(chan string, 9)
	store.OnReady(func(key string) { queue <- key })
	return c, store, queue
}

func (c *caches) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	if c.meanwhile != nil {
		c.meanwhile()
	}
	time.Sleep(c.takes)
	if proof, ok := c.proof[resource]; ok {
		return proof
	}
	// A busy cache, whatever it was at before.
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "30"}
}

func (*caches) Known(schema.GroupResource) (freshness.Proof, bool) { return freshness.Proof{}, false }

func (*caches) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (*caches) Wait(ctx context.Context, _ schema.GroupResource, _ freshness.Proof) { <-ctx.Done() }

// What a deletion depends on of the owner and its pods must be as it was read, and nothing else matters.
func TestADeletionDependsOnItsOwnerAndItsPods(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, c *caches)
		refused   bool
	}{
		"nothing": {func(*testing.T, *caches) {}, false},
		"others": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Add(aPod("3", "40", "b")))
		}, false},
		"status of the set":     {func(t *testing.T, c *caches) { c.sets.version = "40"; require.NoError(t, c.sets.Update(aSet("a", 3))) }, false},
		"spec of the set":       {func(t *testing.T, c *caches) { require.NoError(t, c.sets.Update(aSet("a", 4))) }, true},
		"the set created again": {func(t *testing.T, c *caches) { require.NoError(t, c.sets.Update(aSet("c", 3))) }, true},
		"the set gone":          {func(t *testing.T, c *caches) { require.NoError(t, c.sets.Delete(aSet("a", 3))) }, true},
		"the set terminating": {func(t *testing.T, c *caches) {
			set := aSet("a", 3)
			set.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			require.NoError(t, c.sets.Update(set))
		}, true},
		"a pod changed": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Update(aPod("1", "40", "a")))
		}, true},
		"a pod more": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Add(aPod("4", "40", "a")))
		}, true},
		"a pod less": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Delete(aPod("1", "11", "a")))
		}, true},
		"a pod released": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Update(aPod("1", "40", "b")))
		}, true},
		"a pod replaced": {func(t *testing.T, c *caches) {
			c.pods.version = "40"
			require.NoError(t, c.pods.Delete(aPod("1", "11", "a")))
			require.NoError(t, c.pods.Add(aPod("4", "39", "a")))
		}, true},
		"the cache went back": {func(_ *testing.T, c *caches) { c.pods.version = "15" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, store, queue := newCaches(t)
			c.meanwhile = sync.OnceFunc(func() { tc.meanwhile(t, c) })
			ctx := consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind)
			err := consistency.ProveFresh(ctx, store, daemons, pods)
			require.Equal(t, tc.refused, err != nil, "%v", err)
			require.Equal(t, tc.refused, consistency.Again(err))
			require.Len(t, queue, map[bool]int{true: 1}[tc.refused])
		})
	}
}

// So does it on the revisions of its owner. The reconcile writes one itself, and has read what it wrote.
func TestADeletionDependsOnTheRevisionsOfItsOwner(t *testing.T) {
	revision := func(name, version string, owner types.UID) *apps.ControllerRevision {
		return &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "set", UID: owner}, setKind)}}}
	}
	for name, tc := range map[string]struct {
		written []*apps.ControllerRevision // by the reconcile
		others  []*apps.ControllerRevision // by others
		deleted []*apps.ControllerRevision
		refused bool
	}{
		"nothing":                     {},
		"one of another set":          {others: []*apps.ControllerRevision{revision("4", "40", "b")}},
		"one made":                    {written: []*apps.ControllerRevision{revision("4", "40", "a")}},
		"one changed":                 {written: []*apps.ControllerRevision{revision("1", "40", "a")}},
		"one made by another":         {others: []*apps.ControllerRevision{revision("4", "40", "a")}, refused: true},
		"one changed by another":      {others: []*apps.ControllerRevision{revision("1", "40", "a")}, refused: true},
		"one deleted":                 {deleted: []*apps.ControllerRevision{revision("1", "11", "a")}, refused: true},
		"one made, another deleted":   {written: []*apps.ControllerRevision{revision("4", "40", "a")}, deleted: []*apps.ControllerRevision{revision("1", "11", "a")}, refused: true},
		"one changed, another made":   {written: []*apps.ControllerRevision{revision("1", "40", "a")}, others: []*apps.ControllerRevision{revision("4", "39", "a")}, refused: true},
		"one made, and changed since": {written: []*apps.ControllerRevision{revision("4", "39", "a")}, others: []*apps.ControllerRevision{revision("4", "40", "a")}, refused: true},
		"two written":                 {written: []*apps.ControllerRevision{revision("1", "39", "a"), revision("4", "40", "a")}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, store, _ := newCaches(t)
			revisions := &indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), "20"}
			for _, r := range []*apps.ControllerRevision{revision("1", "11", "a"), revision("2", "20", "a"), revision("3", "13", "b")} {
				require.NoError(t, revisions.Add(r))
			}
			store.caches[revisionResource] = revisions
			indexByController(store.caches)
			set := aSet("a", 3)
			reconcile := func() error {
				return consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, set, setKind), store, daemons, revisionResource)
			}
			c.meanwhile = sync.OnceFunc(func() {
				revisions.version = "40"
				for _, r := range tc.written {
					store.Wrote(types.NamespacedName{Namespace: "ns", Name: "set"}, "a", revisionResource, r.ObjectMeta, rvtracker.Sent{})
					require.NoError(t, revisions.Update(r))
				}
				for _, r := range tc.others {
					require.NoError(t, revisions.Update(r))
				}
				for _, r := range tc.deleted {
					require.NoError(t, revisions.Delete(r))
				}
			})
			err := reconcile()
			require.Equal(t, tc.refused, err != nil, "%v", err)
			require.NoError(t, reconcile(), "it is read again")
			require.Empty(t, store.revisions)
		})
	}
}

// The owner is read before the view is taken, so that a cache that had passed the proof by then is not enough.
func TestAnOwnerThatChangedBeforeTheViewIsNotProven(t *testing.T) {
	c, store, _ := newCaches(t)
	c.sets.version = "40"
	require.NoError(t, c.sets.Update(aSet("a", 4)))
	require.Error(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind), store, daemons))
	require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, aSet("a", 4), setKind), store, daemons))
}

// A stale cache holds deletions by it, whatever the reconcile has read.
func TestADeletionWaitsForTheCachesOfItsOwnerAndItsPods(t *testing.T) {
	for _, resource := range []schema.GroupResource{daemons, pods} {
		for _, proof := range []freshness.Proof{stale, down, denied} {
			c, store, queue := newCaches(t)
			c.proof[resource] = proof
			err := consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind), store, daemons, pods)
			require.True(t, consistency.Parked(err))
			require.False(t, consistency.Again(err), "its status is written")
			require.Empty(t, queue)
			require.Len(t, rowsOf(store.Waits), 1)
			require.Equal(t, resource, rowsOf(store.Waits)[0].Resource)
		}
	}
}

// Without an index of the owners' pods the whole cache must have been proven before it was read.
func TestPodsWithoutAnIndex(t *testing.T) {
	c, store, queue := newCaches(t)
	c.pods.Indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	require.Error(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind), store, pods))
	require.Equal(t, "ns/set", <-queue)
	c.pods.version = "30"
	require.NoError(t, store.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "set"}))
	require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind), store, pods))
}

// What was read long before a pod is deleted for it is read again: once, with the proofs made before.
func TestADeletionIsNotForWhatWasReadLongAgo(t *testing.T) {
	for takes, refused := range map[time.Duration]bool{ProofAge: false, ProofAge + time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			c, store, queue := newCaches(t)
			c.proof[daemons] = freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "20"}
			owner := types.NamespacedName{Namespace: "ns", Name: "set"}
			reconcile := func() error {
				require.NoError(t, store.EnsureReady(owner))
				ctx := consistency.WithOwner(t.Context(), store, owner, "uid")
				time.Sleep(takes) // for creations, one after the other
				return consistency.ProveFresh(ctx, store, daemons)
			}
			err := reconcile()
			if !refused {
				require.NoError(t, err)
				return
			}
			require.True(t, consistency.Again(err), "%v", err)
			require.Equal(t, "ns/set", <-queue)
			require.NoError(t, reconcile())
		})
	}
}

// A node may have joined since the last proof, and a pod of it is in the cache of pods already: of nodes a proof from before the
// reconcile says nothing, of what the owner is or controls one of two seconds before does. A reconcile that is put off and begins again
// wants nodes as of when it began first.
func TestNodesAreProvenAsOfTheReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store, queue := newCaches(t)
		nodeCache := &indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), "20"}
		store.caches[nodes] = nodeCache
		asked := &asking{caches: c, asOf: map[schema.GroupResource]time.Time{}}
		store.prover = asked
		time.Sleep(time.Hour)
		owner := types.NamespacedName{Namespace: "ns", Name: "set"}
		reconcile := func() (time.Time, error) {
			require.NoError(t, store.EnsureReady(owner))
			ctx := consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind)
			return time.Now(), consistency.ProveFresh(ctx, store, daemons, pods, nodes)
		}
		began, err := reconcile() // The proof is of 30, and the view of 20.
		require.True(t, consistency.Again(err), "%v", err)
		require.Equal(t, "ns/set", <-queue)
		require.Equal(t, map[schema.GroupResource]time.Time{daemons: began.Add(-ProofAge), pods: began.Add(-ProofAge), nodes: began}, asked.asOf)

		nodeCache.version, c.pods.version, c.sets.version = "30", "30", "30"
		time.Sleep(time.Second)
		clear(asked.asOf)
		again, err := reconcile()
		require.NoError(t, err)
		require.Equal(t, map[schema.GroupResource]time.Time{daemons: again.Add(-ProofAge), pods: again.Add(-ProofAge), nodes: began}, asked.asOf)
	})
}

// asking notes what proofs are asked for.
type asking struct {
	*caches
	mu   sync.Mutex
	asOf map[schema.GroupResource]time.Time
}

func (a *asking) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	a.mu.Lock()
	a.asOf[resource] = asOf
	a.mu.Unlock()
	return a.caches.Prove(ctx, resource, asOf)
}
