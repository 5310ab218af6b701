// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// claimTest is what the controller of resource claims has in its caches, and what the server has in place of the pod.
type claimTest struct {
	cached *corev1.Pod // nil: none
	live   *corev1.Pod // nil: none
	stock  bool
	proof  freshness.Proof
	// deleted is a pod that the controller sees go, and that comes back after that.
	deleted *corev1.Pod
	// generated has the claim belong to the pod, and gone has it gone from the server, unseen.
	generated, gone bool

	released bool
	removed  string // how the claim was asked to be deleted
	reads    int
}

// claimingPod names another claim: each event of a claim has it looked at once more for a pod in the cache that names it and has ended,
// and that may be before or after the cache shows what the first look wrote.
func claimingPod(uid types.UID, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid},
		Spec:       corev1.PodSpec{NodeName: "node", ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: new("another")}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// The claim is reserved for the pod with the UID new. Stock releases it for what a stale cache has under that name.
func TestResourceClaims(t *testing.T) {
	old, now, ended := claimingPod("old", corev1.PodSucceeded), claimingPod("new", corev1.PodRunning), claimingPod("new", corev1.PodSucceeded)
	later := claimingPod("later", corev1.PodPending)
	later.Spec.NodeName = ""
	for name, test := range map[string]claimTest{
		"stock, cache stale":                  {cached: old, live: now, stock: true, released: true},
		"stock, generated claim, cache stale": {cached: old, live: now, stock: true, generated: true, released: true, removed: "c"},
		"stock, pod restored":                 {cached: now, live: now, deleted: now, stock: true, released: true},
		"cache stale":                         {cached: old, live: now, proof: stale, reads: 1},
		"generated claim, cache stale":        {cached: old, live: now, proof: stale, generated: true, reads: 1},
		"pod restored":                        {cached: now, live: now, deleted: now, proof: fresh},
		"replaced":                            {cached: later, live: later, proof: fresh, released: true},
		"replaced, cache stale":               {cached: later, live: later, proof: stale, released: true, reads: 1},
		"ended":                               {cached: ended, live: ended, proof: fresh, released: true},
		"ended, cache stale":                  {cached: ended, live: ended, proof: stale, released: true, reads: 1},
		"gone, cache stale":                   {cached: old, proof: stale, released: true, reads: 1},
		"generated claim, ended":              {cached: ended, live: ended, proof: fresh, generated: true, released: true, removed: "c/claim-uid"},
		"generated claim, ended, claim gone":  {cached: ended, live: ended, proof: fresh, generated: true, gone: true, released: true, removed: "c/claim-uid"},
		"runs":                                {cached: now, live: now, proof: stale},
		"nothing can be proven":               {cached: old, live: now, proof: down, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.run(t) })
		})
	}
}

func (c claimTest) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		if c.stock {
			return consistency.NewNoopConsistencyStore()
		}
		require.Equal(t, "resourceclaim", controller)
		s := passStore(ctx, nil, caches)
		s.name, s.prover = controller, &answers{Prover: &verdictOfCache{proof: c.proof, store: s}}
		s.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		return s
	})
	t.Cleanup(func() { consistency.SetProvider(nil) })
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim-uid", Finalizers: []string{resourceapi.Finalizer}},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "a", UID: "new"}}},
	}
	if c.generated {
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "new", Controller: new(true)}}
	}
	client := fake.NewClientset()
	first := c.cached
	if c.deleted != nil {
		first = c.deleted
	}
	if first != nil {
		require.NoError(t, client.Tracker().Add(first))
	}
	reads, removed := 0, ""
	client.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if fields := action.(k8stesting.ListAction).GetListRestrictions().Fields; fields.Empty() {
			return false, nil, nil
		}
		reads++
		if c.live == nil {
			return true, &corev1.PodList{}, nil
		}
		return true, &corev1.PodList{Items: []corev1.Pod{*c.live}}, nil
	})
	client.PrependReactor("delete", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		d := action.(k8stesting.DeleteActionImpl)
		removed = d.Name
		if p := d.DeleteOptions.Preconditions; p != nil {
			removed += "/" + string(*p.UID)
			if c.gone {
				return true, nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), d.Name)
			}
			return true, nil, apierrors.NewConflict(resourceapi.Resource("resourceclaims"), d.Name, fmt.Errorf("another UID"))
		}
		return true, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := resourceclaim.NewController(klog.FromContext(ctx), client, factory.Core().V1().Pods(), factory.Scheduling().V1beta1().PodGroups(),
		factory.Resource().V1().ResourceClaims(), factory.Resource().V1().ResourceClaimTemplates())
	require.NoError(t, err)
	defer func() {
		cancel()
		factory.Shutdown()
		time.Sleep(time.Minute)
	}()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go controller.Run(ctx, 10)
	synctest.Wait()
	if c.deleted != nil {
		require.NoError(t, client.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.NoError(t, client.Tracker().Add(c.cached))
		synctest.Wait()
	}
	require.NoError(t, client.Tracker().Add(claim))
	time.Sleep(time.Minute)
	synctest.Wait()
	after, err := client.ResourceV1().ResourceClaims("ns").Get(ctx, "c", metav1.GetOptions{})
	require.NoError(t, err)
	var reserved []types.UID
	for _, consumer := range after.Status.ReservedFor {
		reserved = append(reserved, consumer.UID)
	}
	require.Equal(t, c.released, !slices.Contains(reserved, "new"), reserved)
	require.Equal(t, len(reserved) == 0, after.Status.Allocation == nil)
	require.Equal(t, c.removed, removed)
	require.Equal(t, c.reads, reads)
	failed := 0
	for _, action := range client.Actions() {
		if action.Matches("delete", "resourceclaims") {
			failed++
		}
	}
	require.LessOrEqual(t, failed, 8, "no loop of errors")
}

// verdictOfCache has the proof say the version that the cache has.
type verdictOfCache struct {
	verdicts
	proof freshness.Proof
	store *Store
}

func (v *verdictOfCache) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	proof := v.proof
	proof.Exact, proof.ResourceVersion = true, v.store.followed[resource].LastStoreSyncResourceVersion()
	return proof
}
