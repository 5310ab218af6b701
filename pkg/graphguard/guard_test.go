// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package graphguard

import (
	"context"
	"fmt"
	"sync"
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

var (
	replicaSet = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
	sets       = appsv1.SchemeGroupVersion.WithResource("replicasets")
	gadgets    = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}

	fresh = freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5"}
	stale = freshness.Proof{Outcome: freshness.Stale, ResourceVersion: "9"}
	down  = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonTimeout}
	none  = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonIncomparable}
)

// world is a graph, its informers' handlers and the server, which proves what the test says.
type world struct {
	*Guard

	mu       sync.Mutex
	verdicts map[schema.GroupResource]freshness.Proof
	takes    map[schema.GroupResource]time.Duration
	asked    map[schema.GroupResource][]time.Time
	// marks wait for the graph; it is stuck if they must.
	marks   []func()
	stuck   bool
	trusted []bool

	handlers map[schema.GroupVersionResource]cache.ResourceEventHandler
	stores   map[schema.GroupVersionResource]cache.Store
	again    chan string
}

// newWorld follows resources, of which everything up to version 5 was handed over.
func newWorld(t *testing.T, resources ...schema.GroupVersionResource) *world {
	w := &world{verdicts: map[schema.GroupResource]freshness.Proof{}, takes: map[schema.GroupResource]time.Duration{}, asked: map[schema.GroupResource][]time.Time{},
		handlers: map[schema.GroupVersionResource]cache.ResourceEventHandler{}, stores: map[schema.GroupVersionResource]cache.Store{}, again: make(chan string, 10000)}
	w.Guard = New(t.Context(), Options{Controller: "test", Prove: w.prove,
		Register: func(schema.GroupResource, cache.Store) error { return nil },
	}, consistency.Graph{Mark: w.mark, Monitored: func() []schema.GroupVersionResource { return resources },
		TrustAbsence: func(trusted bool) { w.trusted = append(w.trusted, trusted) }})
	for _, resource := range resources {
		kind := schema.GroupKind{Group: resource.Group, Kind: resource.Resource}
		if resource == sets {
			kind = replicaSet
		}
		w.stores[resource] = cache.NewStore(cache.MetaNamespaceKeyFunc)
		w.handlers[resource] = w.Follow(consistency.GraphResource{GroupVersionResource: resource, Kind: kind, Namespaced: resource != nodes},
			w.stores[resource], cache.ResourceEventHandlerFuncs{})
		w.list(resource, "5")
		w.bookmark(resource, "5")
		w.verdicts[resource.GroupResource()] = fresh
	}
	return w
}

func (w *world) prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	w.mu.Lock()
	w.asked[resource] = append(w.asked[resource], asOf)
	takes := w.takes[resource]
	w.mu.Unlock()
	// A timer that is due at once is run by whoever waits for it, in a bubble under one context of the race detector, which ends the
	// process if two do so at a time.
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.verdicts[resource]
}

func (w *world) says(resource schema.GroupVersionResource, proof freshness.Proof) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts[resource.GroupResource()] = proof
}

func (w *world) mark(reached func()) {
	w.mu.Lock()
	if w.stuck {
		w.marks = append(w.marks, reached)
	}
	stuck := w.stuck
	w.mu.Unlock()
	if !stuck {
		reached()
	}
}

// work has the graph work off what is queued.
func (w *world) work() {
	w.mu.Lock()
	marks := w.marks
	w.marks, w.stuck = nil, false
	w.mu.Unlock()
	for _, reached := range marks {
		reached()
	}
}

func (w *world) list(resource schema.GroupVersionResource, rv string) {
	if err := w.stores[resource].Replace(nil, rv); err != nil {
		panic(err)
	}
}

func (w *world) bookmark(resource schema.GroupVersionResource, rv string) {
	w.handlers[resource].(cache.BookmarkHandler).GetBookmarkFunc()(rv)
}

func (w *world) event(resource schema.GroupVersionResource, rv string) {
	w.handlers[resource].OnAdd(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: rv}}, false)
}

// proven asks for a ReplicaSet.
func (w *world) proven(name string) bool { return w.provenAs(name, false) }

func (w *world) provenAs(name string, blocking bool) bool {
	return w.Proven(consistency.GraphOwner{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, Kind: replicaSet, UID: types.UID(name), Blocking: blocking},
		func() { w.again <- name })
}

func (w *world) requests() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, asked := range w.asked {
		n += len(asked)
	}
	return n
}

// kept is how many owners are known.
func (w *world) kept() int {
	w.Guard.mu.Lock()
	defer w.Guard.mu.Unlock()
	return len(w.owners)
}

func TestAnOwnerWaitsForAllThatMayHaveDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, configMaps, nodes)
		w.says(nodes, stale)
		w.says(configMaps, stale)
		require.False(t, w.proven("a"))
		time.Sleep(10 * time.Second)
		require.Empty(t, w.again)
		require.True(t, w.Waiting("a"))
		waits := w.Waits()
		require.Len(t, waits, 1)
		require.Equal(t, "ReplicaSet ns/a", waits[0].Object)
		require.Equal(t, configMaps.GroupResource(), waits[0].Resource)
		require.Contains(t, waits[0].Why, "stale")

		w.says(configMaps, fresh)
		require.Equal(t, "a", <-w.again)
		require.False(t, w.Waiting("a"))
		require.True(t, w.proven("a"), "of a namespaced owner no dependent is a node")
		require.Empty(t, w.Waits())
		require.Empty(t, w.asked[nodes.GroupResource()])
	})
}

// A proof is as new as the deletion that was seen.
func TestAProofFromBeforeTheDeletionIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods)
		w.takes[pods.GroupResource()] = time.Second
		require.False(t, w.proven("a"))
		time.Sleep(500 * time.Millisecond)
		since := time.Now()
		require.False(t, w.proven("b"))
		require.Equal(t, "a", <-w.again)
		require.Empty(t, w.again)
		require.Equal(t, "b", <-w.again)
		require.False(t, w.asked[pods.GroupResource()][1].Before(since))
	})
}

// What the cache has is of no use before it is in the graph.
func TestAProofCountsOnceTheGraphHasWhatTheCacheHas(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(w *world)
	}{
		"an event that was not handed over": {
			before: func(w *world) { w.says(pods, freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "7"}) },
			after:  func(w *world) { w.event(pods, "7") },
		},
		"a bookmark": {
			before: func(w *world) { w.says(pods, freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "7"}) },
			after:  func(w *world) { w.bookmark(pods, "8") },
		},
		"a list whose objects come in any order": {
			before: func(w *world) { w.list(pods, "9"); w.event(pods, "9") },
			after:  func(w *world) { w.bookmark(pods, "9") },
		},
		"a queue that is worked off": {
			before: func(w *world) { w.stuck = true },
			after:  (*world).work,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, pods)
				test.before(w)
				require.False(t, w.proven("a"))
				time.Sleep(time.Second)
				synctest.Wait()
				require.Empty(t, w.again)
				test.after(w)
				synctest.Wait()
				require.Equal(t, "a", <-w.again)
				require.True(t, w.proven("a"))
			})
		})
	}
}

// A handler that is added just after the first list gets a bookmark of its own, for all that it was given then.
func TestAHandlerIsAddedBehindTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods)
		w.stores[pods] = cache.NewStore(cache.MetaNamespaceKeyFunc)
		w.handlers[pods] = w.Follow(consistency.GraphResource{GroupVersionResource: pods, Namespaced: true}, w.stores[pods], cache.ResourceEventHandlerFuncs{})
		w.list(pods, "5")
		began := time.Now()
		require.False(t, w.proven("a"))
		w.bookmark(pods, "8")
		require.Equal(t, "a", <-w.again)
		require.True(t, w.proven("a"))
		require.Less(t, time.Since(began), time.Second)
	})
}

// No owner waits without limit, however it is with the caches.
func TestAnOwnerWaitsForALimitedTime(t *testing.T) {
	for name, test := range map[string]struct {
		resource schema.GroupVersionResource
		proof    freshness.Proof
		first    time.Duration // for so long the cache is shown stale
		takes    time.Duration
		want     time.Duration
	}{
		"stale":                    {resource: pods, proof: stale, want: rvtracker.OwnerLimits.Stale},
		"unknown":                  {resource: pods, proof: down, want: rvtracker.OwnerLimits.Unknown},
		"nothing is ever known":    {resource: pods, proof: none, want: heldFailing},
		"no answer":                {resource: pods, proof: down, takes: time.Hour, want: rvtracker.OwnerLimits.Unknown},
		"the graph is behind":      {resource: pods, proof: freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "7"}, want: rvtracker.OwnerLimits.Unknown},
		"a stale custom resource":  {resource: gadgets, proof: stale, want: customStale},
		"a broken custom resource": {resource: gadgets, proof: down, want: heldFailing},
		"stale, then unknown":      {resource: pods, first: 10 * time.Second, proof: down, want: rvtracker.OwnerLimits.Stale},
		"a stale custom resource, then a broken one": {resource: gadgets, first: 5 * time.Second, proof: down, want: customStale},
		"a custom one, and no answer":                {resource: gadgets, proof: down, takes: 40 * time.Second, want: heldFailing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, pods, gadgets)
				w.takes[test.resource.GroupResource()] = test.takes
				w.says(test.resource, test.proof)
				if test.first > 0 {
					w.says(test.resource, stale)
				}
				began := time.Now()
				require.False(t, w.proven("a"))
				if test.first > 0 {
					time.Sleep(test.first)
					w.says(test.resource, test.proof)
				}
				select {
				case <-w.again:
				case <-time.After(2 * rvtracker.OwnerLimits.Stale):
				}
				require.InDelta(t, test.want.Seconds(), time.Since(began).Seconds(), 3)
				require.True(t, w.proven("a"))
			})
		})
	}
}

// One whose finalizer could not be taken off after the longest wait is tried again. It asks again, and waits for no more than an answer.
func TestAnOwnerWaitsForAsLongAsItMayOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods)
		w.says(pods, down)
		require.False(t, w.proven("a"))
		time.Sleep(rvtracker.OwnerLimits.Unknown + 2*time.Second)
		require.Equal(t, "a", <-w.again)
		require.True(t, w.proven("a"))
		for _, proof := range []freshness.Proof{down, stale, fresh} {
			time.Sleep(5 * time.Minute)
			w.says(pods, proof)
			asked := w.requests()
			require.False(t, w.proven("a"))
			time.Sleep(time.Second)
			require.Equal(t, "a", <-w.again)
			require.Equal(t, asked+1, w.requests())
			require.True(t, w.proven("a"))
		}
		w.says(pods, down)
		require.False(t, w.proven("b"))
		time.Sleep(10 * time.Second)
		require.Empty(t, w.again, "others wait as ever")
		time.Sleep(time.Hour)
		require.Zero(t, w.kept())
	})
}

// Other callers may show that a cache is stale before an owner comes, and then nothing more is known.
func TestAnOwnerComesAfterACacheWasShownStale(t *testing.T) {
	for name, test := range map[string]struct{ ago, want time.Duration }{
		"a moment ago": {time.Second, customStale},
		"long ago":     {2 * customStale, heldFailing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, pods, gadgets)
				began := time.Now()
				proof := down
				proof.StaleAt = began.Add(-test.ago)
				w.says(gadgets, proof)
				require.False(t, w.proven("a"))
				<-w.again
				require.InDelta(t, test.want.Seconds(), time.Since(began).Seconds(), 3)
			})
		})
	}
}

// While a custom resource stays broken, it holds up nobody else, and is in use again once it is mended.
func TestABrokenCustomResourceHoldsUpAllOwnersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, gadgets)
		w.says(gadgets, down)
		w.takes[gadgets.GroupResource()] = 15 * time.Second
		require.False(t, w.proven("first"))
		require.Equal(t, "first", <-w.again)
		for i := range 50 {
			began := time.Now()
			name := fmt.Sprint(i)
			require.False(t, w.proven(name))
			require.Equal(t, name, <-w.again)
			require.LessOrEqual(t, time.Since(began), 2*askEvery)
			time.Sleep(time.Second)
		}
		w.says(gadgets, fresh)
		w.takes[gadgets.GroupResource()] = 0
		require.False(t, w.proven("mended"))
		<-w.again
		time.Sleep(20 * time.Second)
		w.says(gadgets, stale)
		require.False(t, w.proven("last"))
		time.Sleep(5 * time.Second)
		require.Empty(t, w.again, "it counts again")
	})
}

// A custom resource whose versions cannot be compared, as those of an aggregated API, holds up no owner for longer than the others do, and counts again
// once they can.
func TestVersionsThatCannotBeComparedHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, gadgets)
		w.says(gadgets, none)
		for i := range 3 {
			name, began := fmt.Sprint(i), time.Now()
			require.False(t, w.proven(name), "of the others a proof is wanted")
			require.Equal(t, name, <-w.again)
			require.LessOrEqual(t, time.Since(began), askEvery, name)
			time.Sleep(time.Minute)
		}
		w.says(gadgets, stale)
		require.False(t, w.proven("compared"))
		<-w.again
		time.Sleep(askEvery + time.Millisecond) // until it was asked about, for that owner
		require.False(t, w.proven("last"))
		time.Sleep(5 * time.Second)
		require.Empty(t, w.again, "it counts again")
	})
}

// Many owners cost what one costs.
func TestManyOwnersShareTheirProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, configMaps)
		began := time.Now()
		for i := range 5000 {
			w.proven(fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		for range 5000 {
			<-w.again
		}
		lasted := time.Since(began)
		require.LessOrEqual(t, lasted, 5*time.Second+2*askEvery)
		require.LessOrEqual(t, w.requests(), 2*(int(lasted/askEvery)+1))
		time.Sleep(provenFor + 2*lookEvery)
		require.Zero(t, w.kept(), "nothing is kept")
	})
}

// Many custom resources are asked about one after the other, so that they leave the others their share of requests.
func TestManyCustomResourcesAreAskedAboutSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resources := []schema.GroupVersionResource{pods}
		for i := range 1000 {
			resources = append(resources, schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("kind%d", i)})
		}
		w := newWorld(t, resources...)
		began := time.Now()
		require.False(t, w.proven("a"))
		require.Equal(t, "a", <-w.again)
		require.InDelta(t, heldFailing.Seconds(), time.Since(began).Seconds(), 2)
		require.LessOrEqual(t, w.requests(), 1+customBurst+customRate*(int(time.Since(began)/time.Second)+1))
	})
}

// A foreground deletion waits for what blocks it only.
func TestAForegroundDeletionWaitsForWhatBlocksIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, configMaps, sets)
		w.says(configMaps, stale)
		w.says(sets, stale)
		require.False(t, w.provenAs("a", true))
		require.False(t, w.Waiting("a"), "to be orphaned")
		require.Equal(t, "a", <-w.again)
		require.True(t, w.provenAs("a", true))
		require.False(t, w.proven("a"), "orphaning is another matter")
	})
}

// A list may show that an owner is back, and that it is not deleted any more.
func TestARelistPutsWhatWasKnownInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, sets)
		require.Empty(t, w.trusted, "the first list shows nothing of the kind")
		require.False(t, w.proven("a"))
		<-w.again
		w.list(sets, "3")
		require.Equal(t, []bool{false}, w.trusted)
		require.False(t, w.proven("a"), "it is deleted for another time")
		w.stuck = true
		w.bookmark(sets, "3")
		require.Equal(t, []bool{false}, w.trusted, "the graph does not have the list yet")
		w.work()
		require.Equal(t, []bool{false, true}, w.trusted)
	})
}

// Of owners that are gone nothing is kept.
func TestAnOwnerThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pods, sets)
		w.says(pods, stale)
		require.False(t, w.proven("a"))
		w.handlers[sets].OnDelete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "6"}})
		require.Zero(t, w.kept())
		require.Empty(t, w.Waits())
		time.Sleep(2 * askEvery)
		n := w.requests()
		time.Sleep(time.Minute)
		require.Equal(t, n, w.requests(), "nobody asks any more")
	})
}

// A relist that shows an object under the name of one that is gone tells the graph that the one is gone: it goes by UID.
func TestARelistTellsOfAnObjectThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sets)
		var told []string
		note := func(what string, object any) {
			told = append(told, what+" "+string(object.(metav1.Object).GetUID()))
		}
		handler := w.Follow(consistency.GraphResource{GroupVersionResource: sets, Kind: replicaSet, Namespaced: true}, w.stores[sets], cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { note("added", object) },
			UpdateFunc: func(was, object any) { note("updated", object) },
			DeleteFunc: func(object any) { note("deleted", object) },
		})
		of := func(uid, rv string) *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner", UID: types.UID(uid), ResourceVersion: rv}}
		}
		w.says(sets, stale)
		require.False(t, w.proven("a"))
		handler.OnUpdate(of("a", "5"), of("a", "6"))
		handler.OnUpdate(of("a", "6"), of("b", "7"))
		require.Equal(t, []string{"updated a", "deleted a", "added b"}, told)
		require.Zero(t, w.kept(), "the owner that is gone waits no more")
	})
}
