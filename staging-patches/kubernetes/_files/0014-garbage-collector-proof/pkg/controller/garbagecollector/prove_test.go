// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fakemetadata "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controller/garbagecollector/metaonly"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// verdict says of every owner whether it is proven, and keeps what it is to call.
type verdict struct {
	proven, waiting bool
	asked           []consistencyutil.GraphOwner
	again           []func()
}

func (*verdict) Follow(_ consistencyutil.GraphResource, _ cache.Store, handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return handler
}

func (v *verdict) Proven(owner consistencyutil.GraphOwner, again func()) bool {
	v.asked, v.again = append(v.asked, owner), append(v.again, again)
	return v.proven
}

func (v *verdict) Waiting(types.UID) bool { return v.waiting }

// guarded is a garbage collector whose graph has one ReplicationController, which the server has, too. It is deleted, with the finalizer.
func guarded(t *testing.T, finalizer string) (*GarbageCollector, *node, *verdict, *fakemetadata.FakeMetadataClient) {
	_, ctx := ktesting.NewTestContext(t)
	scheme := fakemetadata.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	owner := makeMetadataObj(makeID("v1", "ReplicationController", "ns", "owner", "uid"))
	owner.Finalizers, owner.DeletionTimestamp = []string{finalizer}, &metav1.Time{Time: time.Now()}
	client := fakemetadata.NewSimpleMetadataClient(scheme, owner)
	gc, err := NewGarbageCollector(ctx, nil, client, &testRESTMapper{testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme)}, nil, nil, nil)
	require.NoError(t, err)
	v := &verdict{}
	gc.dependencyGraphBuilder.guard = v
	n := makeNode(makeID("v1", "ReplicationController", "ns", "owner", "uid"))
	n.dependents = map[*node]struct{}{}
	gc.dependencyGraphBuilder.uidToNode.Write(n)
	return gc, n, v, client
}

// failedBefore puts an owner on a queue that knows of a failure.
func failedBefore(t *testing.T, queue workqueue.TypedRateLimitingInterface[*node], n *node) {
	queue.AddRateLimited(n)
	require.Eventually(t, func() bool { return queue.Len() == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 1, queue.NumRequeues(n))
}

// An owner keeps the finalizer until the graph is proven to have all dependents. It leaves its queue alone.
func TestFinalizersStayUntilTheGraphIsProven(t *testing.T) {
	for finalizer, blocking := range map[string]bool{metav1.FinalizerOrphanDependents: false, metav1.FinalizerDeleteDependents: true} {
		t.Run(finalizer, func(t *testing.T) {
			gc, owner, v, client := guarded(t, finalizer)
			logger, ctx := ktesting.NewTestContext(t)
			queue, process := gc.attemptToOrphan, func() { gc.processAttemptToOrphanWorker(logger) }
			if blocking {
				owner.markDeletingDependents()
				queue, process = gc.attemptToDelete, func() { gc.processAttemptToDeleteWorker(ctx) }
			}
			patches := func() (n int) {
				for _, action := range client.Actions() {
					if action.GetVerb() == "patch" {
						n++
					}
				}
				return n
			}
			failedBefore(t, queue, owner)
			process()
			require.Zero(t, patches())
			require.Zero(t, queue.Len())
			require.Equal(t, 1, queue.NumRequeues(owner), "it has neither failed nor succeeded")
			require.Equal(t, []consistencyutil.GraphOwner{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "owner"}, Kind: v.asked[0].Kind,
				UID: "uid", Blocking: blocking}}, v.asked)
			require.Equal(t, "ReplicationController", v.asked[0].Kind.String())

			v.proven = true
			v.again[0]()
			require.Equal(t, 1, queue.Len())
			process()
			require.Equal(t, 1, patches())
			require.Zero(t, queue.NumRequeues(owner))
		})
	}
}

// The owner of one that waits for the proof alone has its dependents tried when that begins, as it would at that one's end. At its end what has
// failed is left to its backoff, which another try would double.
func TestTheEndOfOneThatWaitedTriesNothingThatHasFailed(t *testing.T) {
	for name, c := range map[string]struct{ waited, failed, tries bool }{
		"waited, and another failed":   {true, true, false},
		"waited, and none failed":      {true, false, true},
		"did not wait, another failed": {false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			gc, owner, v, _ := guarded(t, metav1.FinalizerDeleteDependents)
			logger, _ := ktesting.NewTestContext(t)
			gb := gc.dependencyGraphBuilder
			owner.markDeletingDependents()
			dependent := func(name string) *node {
				n := makeNode(makeID("v1", "ConfigMap", "ns", name, name), withOwners(makeID("v1", "ReplicationController", "ns", "owner", "uid")))
				n.owners[0].BlockOwnerDeletion, n.dependents = new(true), map[*node]struct{}{}
				gb.uidToNode.Write(n)
				owner.addDependent(n)
				return n
			}
			waits, other := dependent("waits"), dependent("other")
			waits.markBeingDeleted()
			waits.markDeletingDependents()
			if c.failed {
				failedBefore(t, gc.attemptToDelete, other)
				n, _ := gc.attemptToDelete.Get()
				gc.attemptToDelete.Done(n)
			}
			v.proven = !c.waited
			for range 2 {
				require.Equal(t, c.waited, gb.held(waits, true, gc.attemptToDelete))
			}
			if c.waited {
				require.Equal(t, 1, gc.attemptToDelete.Len(), "it is tried now")
				n, _ := gc.attemptToDelete.Get()
				require.Equal(t, owner, n)
				gc.attemptToDelete.Done(n)
				require.True(t, gb.held(waits, true, gc.attemptToDelete))
				require.Zero(t, gc.attemptToDelete.Len(), "and once")
			}
			gone := metaonly.MetadataOnlyObject{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "waits", UID: "waits"}}
			gb.graphChanges.Add(&event{eventType: deleteEvent, obj: &gone})
			require.True(t, gb.processGraphChanges(logger))
			require.Equal(t, c.tries, gc.attemptToDelete.Len() == 1)
		})
	}
}

// What the graph has is orphaned before it is proven to have all, and not again while that is waited for.
func TestWhatTheGraphHasIsOrphanedAtOnce(t *testing.T) {
	gc, owner, v, client := guarded(t, metav1.FinalizerOrphanDependents)
	logger, _ := ktesting.NewTestContext(t)
	owner.addDependent(makeNode(makeID("v1", "Pod", "ns", "pod", "pod"), withOwners(makeID("v1", "ReplicationController", "ns", "owner", "uid"))))
	for _, waiting := range []bool{false, true} {
		v.waiting = waiting
		require.Equal(t, heldItem, gc.attemptToOrphanWorker(logger, owner))
		require.Len(t, client.Actions(), 1)
		require.Equal(t, "pods", client.Actions()[0].GetResource().Resource)
		require.Len(t, v.asked, 1)
	}

	// What has come since is, too, and the rest once more: it may refer to the owner again.
	v.waiting, v.proven = false, true
	owner.addDependent(makeNode(makeID("v1", "Pod", "ns", "late", "late"), withOwners(makeID("v1", "ReplicationController", "ns", "owner", "uid"))))
	client.ClearActions()
	require.Equal(t, workQueueItemAction(forgetItem), gc.attemptToOrphanWorker(logger, owner))
	var orphaned []string
	for _, action := range client.Actions()[:2] {
		orphaned = append(orphaned, action.(clienttesting.PatchAction).GetName())
	}
	require.ElementsMatch(t, []string{"pod", "late"}, orphaned)
}

// What becomes known while it is asked whether the graph is complete counts.
func TestTheGraphIsReadAfterItWasProven(t *testing.T) {
	gc, owner, _, _ := guarded(t, metav1.FinalizerDeleteDependents)
	logger, _ := ktesting.NewTestContext(t)
	dependent := makeNode(makeID("v1", "Pod", "ns", "pod", "pod"), withOwners(makeID("v1", "ReplicationController", "ns", "owner", "uid")))
	dependent.owners[0].BlockOwnerDeletion = new(true)
	gc.dependencyGraphBuilder.guard = &arriving{then: func() { owner.addDependent(dependent) }}
	require.NoError(t, gc.processDeletingDependentsItem(logger, owner))
	require.Equal(t, 1, gc.attemptToDelete.Len(), "the dependent goes first")
}

// arriving has something come in while it proves.
type arriving struct {
	verdict
	then func()
}

func (a *arriving) Proven(consistencyutil.GraphOwner, func()) bool {
	a.then()
	return true
}

// A marker is reached once what was queued before it is in the graph.
func TestAMarkerGoesThroughTheQueue(t *testing.T) {
	gc, _, _, _ := guarded(t, "")
	logger, _ := ktesting.NewTestContext(t)
	gb := gc.dependencyGraphBuilder
	pod := metaonly.MetadataOnlyObject{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod"}}
	gb.graphChanges.Add(&event{eventType: addEvent, obj: &pod})
	reached := false
	gb.graphChanges.Add(&event{reached: func() {
		reached = true
		require.True(t, gc.GraphHasUID("pod"))
	}})
	require.True(t, gb.processGraphChanges(logger))
	require.False(t, reached)
	require.True(t, gb.processGraphChanges(logger))
	require.True(t, reached)
}

// An owner that was absent is looked up again while it may be back, and after that.
func TestAbsenceInDoubt(t *testing.T) {
	c := NewReferenceCache(10)
	gone := objectReference{Namespace: "ns", OwnerReference: metav1.OwnerReference{Kind: "Deployment", Name: "gone", UID: "gone"}}
	c.Add(gone)
	require.True(t, c.Has(gone))
	c.trust(false)
	require.False(t, c.Has(gone))
	c.Add(gone)
	c.trust(true)
	require.False(t, c.Has(gone), "an event from before the list has noted that")
	c.Add(gone)
	require.True(t, c.Has(gone))
}
