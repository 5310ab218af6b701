// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

var setLabels = map[string]string{"app": "set"}

// labelled is a pod with a UID, and labels that its set selects.
func labelled(pod *v1.Pod) *v1.Pod {
	pod.UID, pod.Labels = types.UID(pod.Name), setLabels
	return pod
}

// selecting is the set of newCaches, with a selector.
func selecting(generation int64) *apps.DaemonSet {
	set := aSet("a", generation)
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: setLabels}
	return set
}

// newLive returns a Live whose server has the objects.
func newLive(t *testing.T, budget int, few bool, objects ...runtime.Object) (*Live, *metadatafake.FakeMetadataClient) {
	var served []runtime.Object
	for _, o := range objects {
		served = append(served, serve(t, o))
	}
	client := metadatafake.NewSimpleMetadataClient(metadataScheme(t), served...)
	return &Live{client: client, budget: livereads.NewBudget(0.01, budget), forMany: livereads.NewBudget(0.01, budget), outdated: utilcache.NewExpiring(),
		version: func(r schema.GroupResource) (schema.GroupVersionResource, bool) { return r.WithVersion("v1"), true },
		few:     func(schema.GroupResource) bool { return few }}, client
}

func metadataScheme(t *testing.T) *runtime.Scheme {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	return scheme
}

// A large cache that stands still takes long to prove. A deletion that depends on one object and its pods does not
// wait for that, but for a server that has them otherwise it does.
func TestADeletionDoesNotWaitForTheProofOfALargeQuietCache(t *testing.T) {
	const slow = promptly - time.Millisecond
	for name, tc := range map[string]struct {
		objects int
		served  []runtime.Object
		budget  int
		more    int // pods of the set
		takes   time.Duration
	}{
		"as read":              {objects: 200, budget: 2, takes: sharedFirst},
		"small":                {objects: 50, budget: 2, takes: slow},
		"the spec has changed": {objects: 200, budget: 2, served: []runtime.Object{aSet("a", 4)}, takes: slow},
		"a pod has changed":    {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("1", "40", "a"))}, takes: slow},
		"a pod has come":       {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("4", "40", "a"))}, takes: slow},
		"others' pods":         {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("4", "40", "b"))}, takes: sharedFirst},
		"no budget":            {objects: 200, budget: 1, takes: slow},
		"many pods":            {objects: 200, budget: 1, more: fewOwned, takes: sharedFirstOfMany},
		"too many pods":        {objects: 200, budget: 2, more: manyOwned, takes: slow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store, _ := newCaches(t)
				read := selecting(3)
				has := map[string]runtime.Object{}
				for _, o := range append([]runtime.Object{read, labelled(aPod("1", "11", "a")), labelled(aPod("2", "20", "a"))}, tc.served...) {
					served := serve(t, o)
					has[served.Kind+served.Name] = o
				}
				for _, pod := range []*v1.Pod{aPod("1", "11", "a"), aPod("2", "20", "a")} {
					require.NoError(t, c.pods.Update(labelled(pod)))
				}
				for i := range tc.more {
					pod := labelled(aPod(fmt.Sprint("more-", i), "15", "a"))
					require.NoError(t, c.pods.Add(pod))
					has[pod.Name] = pod
				}
				store.live, _ = newLive(t, tc.budget, tc.objects <= 100, slices.Collect(maps.Values(has))...)
				c.takes = slow
				for _, resource := range []schema.GroupResource{daemons, pods} {
					// Proven later, of a quiet cache.
					c.proof[resource] = freshness.Proof{Outcome: freshness.Proven, Exact: true, ResourceVersion: "20"}
				}
				began := time.Now()
				require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, read, setKind), store, daemons, pods))
				require.Equal(t, tc.takes, time.Since(began))
				time.Sleep(slow)
			})
		})
	}
}

// What a reconcile has read may change before a live read shows that. If the cache is right by then, it is read again at once, and does not wait for the proof, but
// only once in a row. If the cache lags, another reading would be no better.
func TestWhatHasChangedIsReadAgainAtOnce(t *testing.T) {
	const slow = promptly - time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c, store, _ := newCaches(t)
		pod := func(name, version string) *v1.Pod { return labelled(aPod(name, version, "a")) }
		has := func(version string) {
			require.NoError(t, c.pods.Update(pod("1", version)))
			c.pods.version = version
		}
		has("11")
		require.NoError(t, c.pods.Update(pod("2", "20")))
		var client *metadatafake.FakeMetadataClient
		store.live, client = newLive(t, 9, false, selecting(3), pod("1", "40"), pod("2", "20"))
		c.takes = slow
		proves := func(changes func()) (took time.Duration, err error) {
			began := time.Now()
			require.NoError(t, store.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "set"}))
			ctx := consistency.WithOwnerRead(t.Context(), store, selecting(3), setKind)
			changes()
			err = consistency.ProveFresh(ctx, store, pods)
			return time.Since(began), err
		}
		took, err := proves(func() { has("40") })
		require.True(t, consistency.Again(err), err)
		require.ErrorContains(t, err, "what its reconcile had read has changed; it is read again")
		require.Equal(t, sharedFirst, took)
		took, err = proves(func() {})
		require.NoError(t, err)
		require.Equal(t, sharedFirst, took)
		require.Len(t, client.Actions(), 2)

		for i, want := range []time.Duration{sharedFirst, slow} {
			has("39")
			took, _ = proves(func() { has("40") })
			require.Equal(t, want, took, "reading %d", i)
		}
		time.Sleep(slow)
		has("39")
		_, err = proves(func() { has("40") })
		require.True(t, consistency.Again(err), err)
		_, err = proves(func() { time.Sleep(ProofAge) })
		require.Error(t, err, "what was read is older than a proof may be")
		time.Sleep(slow)
		time.Sleep(slow)
		has("11")
		took, _ = proves(func() { has("12") })
		require.Equal(t, slow, took, "the cache lags")
		time.Sleep(time.Minute)
	})
}

// Nor does it wait for the proof of a large cache of revisions, of which its set has few. A small one is proven as fast.
func TestADeletionDoesNotWaitForTheProofOfManyRevisions(t *testing.T) {
	const slow = promptly - time.Millisecond
	for few, takes := range map[bool]time.Duration{true: slow, false: sharedFirst} {
		t.Run(fmt.Sprint("few ", few), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store, _ := newCaches(t)
				revision := &apps.ControllerRevision{ObjectMeta: aPod("1", "11", "a").ObjectMeta}
				revision.UID, revision.Labels = "1", setLabels
				revisions := &indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), "20"}
				require.NoError(t, revisions.Add(revision))
				store.caches[revisionResource] = revisions
				indexByController(store.caches)
				store.live, _ = newLive(t, 1, few, revision)
				c.takes, c.proof[revisionResource] = slow, freshness.Proof{Outcome: freshness.Proven, Exact: true, ResourceVersion: "20"}
				began := time.Now()
				require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, selecting(3), setKind), store, revisionResource))
				require.Equal(t, takes, time.Since(began))
				time.Sleep(slow)
			})
		})
	}
}

// A live read that takes long keeps no proof waiting that has come meanwhile.
func TestAProofThatComesDuringALiveReadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late, takes = 100 * time.Millisecond, 3 * time.Second
		c, store, _ := newCaches(t)
		live, client := newLive(t, 1, false, selecting(3))
		client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(takes)
			return false, nil, nil
		})
		store.live, c.takes = live, late
		began := time.Now()
		require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, selecting(3), setKind), store, daemons))
		require.Equal(t, late, time.Since(began))
		time.Sleep(takes)
		require.Len(t, client.Actions(), 1)
	})
}

// What a live read has shown to be outdated is not read again until the cache has another version of it: the server never has that one again. What the
// cache lacks may be gone before it is seen, so that is read again.
func TestWhatIsOutdatedIsNotReadAgain(t *testing.T) {
	pod := func(name, version string) *v1.Pod { return labelled(aPod(name, version, "a")) }
	for name, tc := range map[string]struct {
		resource schema.GroupResource
		served   []runtime.Object
		seen     func(t *testing.T, c *caches) // what the server has
		reads    int
	}{
		"a pod has changed": {resource: pods, served: []runtime.Object{pod("1", "40"), pod("2", "20")}, reads: 1,
			seen: func(t *testing.T, c *caches) { require.NoError(t, c.pods.Update(pod("1", "40"))) }},
		"a pod has gone": {resource: pods, served: []runtime.Object{pod("2", "20")}, reads: 1,
			seen: func(t *testing.T, c *caches) { require.NoError(t, c.pods.Delete(pod("1", "11"))) }},
		"a pod has come": {resource: pods, served: []runtime.Object{pod("1", "11"), pod("2", "20"), pod("4", "40")}, reads: 3,
			seen: func(t *testing.T, c *caches) { require.NoError(t, c.pods.Add(pod("4", "40"))) }},
		"the spec has changed": {resource: daemons, served: []runtime.Object{selecting(4)}, reads: 1,
			seen: func(t *testing.T, c *caches) { require.NoError(t, c.sets.Update(selecting(4))) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store, _ := newCaches(t)
				require.NoError(t, c.pods.Update(pod("1", "11")))
				require.NoError(t, c.pods.Update(pod("2", "20")))
				live, client := newLive(t, 9, true, tc.served...)
				shows := func(generation int64) bool {
					return live.shows(t.Context(), "test", store.View(selecting(generation), setKind).(*view), tc.resource) == asRead
				}
				for range 3 {
					require.False(t, shows(3))
				}
				require.Len(t, client.Actions(), tc.reads)
				time.Sleep(outdatedFor)
				require.False(t, shows(3), "an etcd that was restored may have it again")
				require.Len(t, client.Actions(), tc.reads+1)
				tc.seen(t, c)
				c.pods.version = "40"
				require.True(t, shows(4))
				require.Len(t, client.Actions(), tc.reads+2)
			})
		})
	}
}

// serve is an object as the server shows its metadata.
func serve(t *testing.T, o runtime.Object) *metav1.PartialObjectMetadata {
	t.Helper()
	switch o := o.(type) {
	case *apps.DaemonSet:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: o.ObjectMeta}
	case *apps.ControllerRevision:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevision"}, ObjectMeta: o.ObjectMeta}
	case *v1.Pod:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: o.ObjectMeta}
	}
	t.Fatalf("%T", o)
	return nil
}
