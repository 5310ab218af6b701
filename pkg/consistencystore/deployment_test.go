// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"slices"
	"strings"
	"sync"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

var (
	deployments    = apps.Resource("deployments")
	replicaSets    = apps.Resource("replicasets")
	deploymentKind = apps.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind = apps.SchemeGroupVersion.WithKind("ReplicaSet")
)

// exactly proves caches at the version that they have, but those that are stale.
type exactly struct {
	verdicts
	store *Store
	stale map[schema.GroupResource]bool
	asOf  map[schema.GroupResource]time.Time // what was asked for last
}

func (e *exactly) Prove(_ context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asOf[resource] = asOf
	e.asked = append(e.asked, resource)
	if e.stale[resource] {
		return stale
	}
	return freshness.Proof{Outcome: freshness.Proven, Exact: true, ResourceVersion: e.store.caches[resource].LastStoreSyncResourceVersion()}
}

// deploymentRun is the real controller, with caches that are stale by the prover's word.
type deploymentRun struct {
	prover *exactly

	mu   sync.Mutex
	does []string
}

func (r *deploymentRun) did(action string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.does, action)
}

func startDeployments(t *testing.T, stale []schema.GroupResource, stock bool, objects ...runtime.Object) *deploymentRun {
	r := &deploymentRun{prover: &exactly{stale: map[schema.GroupResource]bool{}, asOf: map[schema.GroupResource]time.Time{}}}
	for _, resource := range stale {
		r.prover.stale[resource] = true
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		does := action.GetVerb() + " " + action.GetResource().Resource
		if sub := action.GetSubresource(); sub != "" {
			does += "/" + sub
		}
		r.does = append(r.does, does)
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	consistency.SetProvider(func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		require.Equal(t, "deployment", controller)
		if stock {
			return consistency.NewNoopConsistencyStore()
		}
		tracker := rvtracker.New(rvtracker.Options{})
		go tracker.Run(ctx)
		r.prover.store = newStore(tracker, controller, stores)
		r.prover.store.ctx, r.prover.store.prover = ctx, r.prover
		return r.prover.store
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	dc, err := deployment.NewDeploymentController(ctx, factory.Apps().V1().Deployments(), factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client)
	require.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	runUntilCleanup(t, cancel, factory, func() { dc.Run(ctx, 2) })
	return r
}

func aTemplate(image string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: image}}}}
}

// aDeployment wants three pods of the image new.
func aDeployment(change func(*apps.Deployment)) *apps.Deployment {
	d := &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web", Generation: 2}, Spec: apps.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: aTemplate("new"),
		Strategy: apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(1))}},
	}}
	if change != nil {
		change(d)
	}
	return d
}

func recreates(d *apps.Deployment) {
	d.Spec.Strategy = apps.DeploymentStrategy{Type: apps.RecreateDeploymentStrategyType}
}

// aReplicaSet of the Deployment has so many pods, all of them available.
func aReplicaSet(image string, replicas int32) *apps.ReplicaSet {
	template := aTemplate(image)
	template.Labels[apps.DefaultDeploymentUniqueLabelKey] = image
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-" + image, UID: types.UID("web-" + image), Labels: template.Labels, ResourceVersion: "12",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(aDeployment(nil), deploymentKind)},
			Annotations: map[string]string{"deployment.kubernetes.io/revision": map[string]string{"old": "1", "new": "2"}[image],
				"deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4"}},
		Spec:   apps.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		Status: apps.ReplicaSetStatus{Replicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas},
	}
}

// What a Deployment does that may harm waits for the proof of what it was decided by. The rest waits for nothing, and once there is a
// proof what was put off is done.
func TestADeploymentWaitsForWhatMayHarm(t *testing.T) {
	const (
		create = "create replicasets"
		scale  = "update replicasets"
		remove = "delete replicasets"
		status = "update deployments/status"
	)
	all := []schema.GroupResource{deployments, replicaSets, pods}
	done := func(d *apps.Deployment) {
		d.Spec.RevisionHistoryLimit = new(int32(0))
		d.Status = apps.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3, ReadyReplicas: 3}
	}
	for name, tc := range map[string]struct {
		change func(*apps.Deployment)
		sets   []runtime.Object
		action string
		// each of which must be proven.
		needs []schema.GroupResource
		// meanwhile, if not the status, is what is done without a proof.
		meanwhile string
	}{
		"first pods of one that recreates":   {change: recreates, action: create},
		"next pods of one that recreates":    {change: recreates, sets: []runtime.Object{aReplicaSet("old", 0)}, action: create, needs: all},
		"pods started again":                 {change: recreates, sets: []runtime.Object{aReplicaSet("old", 0), aReplicaSet("new", 0)}, action: scale, needs: all},
		"old pods of one that recreates":     {change: recreates, sets: []runtime.Object{aReplicaSet("old", 3)}, action: scale, needs: all[:2]},
		"new pods of a rolling update":       {sets: []runtime.Object{aReplicaSet("old", 3)}, action: create},
		"more new pods of a rolling update":  {sets: []runtime.Object{aReplicaSet("old", 2), aReplicaSet("new", 1)}, action: scale},
		"old pods of a rolling update":       {sets: []runtime.Object{aReplicaSet("old", 3), aReplicaSet("new", 1)}, action: scale, needs: all},
		"fewer pods":                         {change: func(d *apps.Deployment) { d.Spec.Replicas = new(int32(2)) }, sets: []runtime.Object{aReplicaSet("new", 3)}, action: scale, needs: all},
		"more pods":                          {change: func(d *apps.Deployment) { d.Spec.Replicas = new(int32(4)) }, sets: []runtime.Object{aReplicaSet("new", 3)}, action: scale},
		"fewer pods of one that is paused":   {change: func(d *apps.Deployment) { d.Spec.Replicas, d.Spec.Paused = new(int32(2)), true }, sets: []runtime.Object{aReplicaSet("new", 3)}, action: scale, needs: all},
		"an old ReplicaSet when all is done": {change: done, sets: []runtime.Object{aReplicaSet("old", 0), aReplicaSet("new", 3)}, action: remove, needs: all[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T, stale []schema.GroupResource, stock bool, want bool) *deploymentRun {
				r := startDeployments(t, stale, stock, append(tc.sets, aDeployment(tc.change))...)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, want, r.did(tc.action), "%v, stale %v", r.does, stale)
				require.True(t, r.did(status) || name == "an old ReplicaSet when all is done", "%v", r.does)
				return r
			}
			synctest.Test(t, func(t *testing.T) { run(t, nil, true, true) })
			synctest.Test(t, func(t *testing.T) { run(t, nil, false, true) })
			for _, resource := range all {
				needs := slices.Contains(tc.needs, resource)
				synctest.Test(t, func(t *testing.T) {
					r := run(t, []schema.GroupResource{resource}, false, !needs)
					require.True(t, !needs || len(rowsOf(r.prover.store.Waits)) > 0)
					r.prover.mu.Lock()
					clear(r.prover.stale)
					r.prover.mu.Unlock()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					require.True(t, r.did(tc.action), "%v", r.does)
					require.Empty(t, rowsOf(r.prover.store.Waits))
				})
			}
		})
	}
}

// A Deployment that recreates starts new pods by its pods as of its reconcile: their controller may have made some a moment ago.
func TestPodsAreProvenAsOfTheReconcileThatRecreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startDeployments(t, nil, false, aDeployment(recreates), aReplicaSet("old", 0))
		synctest.Wait()
		require.True(t, r.did("create replicasets"), "%v", r.does)
		require.Equal(t, map[schema.GroupResource]time.Time{deployments: time.Now().Add(-ProofAge), replicaSets: time.Now().Add(-ProofAge), pods: time.Now()}, r.prover.asOf)
	})
}

// Of a busy cluster's caches no proof is needed that they were as new as a reading: that the Deployment's own ReplicaSets and pods,
// which its ReplicaSets control, are what they were is enough.
func TestADeploymentDependsOnItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, sets, podStore *indexer)
		refused   bool
	}{
		"nothing": {func(*testing.T, *indexer, *indexer) {}, false},
		"others": {func(t *testing.T, sets, podStore *indexer) {
			sets.version, podStore.version = "40", "40"
			require.NoError(t, sets.Add(&apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", ResourceVersion: "40"}}))
			require.NoError(t, podStore.Add(podOfSet("3", "40", "other")))
		}, false},
		"a ReplicaSet changed": {func(t *testing.T, sets, _ *indexer) {
			sets.version = "40"
			rs := aReplicaSet("old", 2)
			rs.ResourceVersion = "40"
			require.NoError(t, sets.Update(rs))
		}, true},
		"a ReplicaSet more": {func(t *testing.T, sets, _ *indexer) {
			sets.version = "40"
			require.NoError(t, sets.Add(aReplicaSet("new", 2)))
		}, true},
		"a ReplicaSet less": {func(t *testing.T, sets, _ *indexer) {
			sets.version = "40"
			require.NoError(t, sets.Delete(aReplicaSet("old", 2)))
		}, true},
		"a pod more": {func(t *testing.T, _, podStore *indexer) {
			podStore.version = "40"
			require.NoError(t, podStore.Add(podOfSet("2", "40", "web-old")))
		}, true},
		"a pod less": {func(t *testing.T, _, podStore *indexer) {
			podStore.version = "40"
			require.NoError(t, podStore.Delete(podOfSet("1", "11", "web-old")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ds := indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), "20"}
			sets := indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), "20"}
			podStore := indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{controller.PodControllerIndex: func(obj any) ([]string, error) {
				pod := obj.(*v1.Pod)
				return []string{controller.PodControllerIndexKey(pod.Namespace, metav1.GetControllerOf(pod))}, nil
			}}), "20"}
			d := aDeployment(nil)
			require.NoError(t, ds.Add(d))
			require.NoError(t, sets.Add(aReplicaSet("old", 3)))
			require.NoError(t, podStore.Add(podOfSet("1", "11", "web-old")))
			c := &caches{meanwhile: sync.OnceFunc(func() { tc.meanwhile(t, &sets, &podStore) }), proof: map[schema.GroupResource]freshness.Proof{}}
			if strings.HasPrefix(name, "a pod") { // The ReplicaSets are proven by their whole cache, so that it is the pods that matter.
				c.proof[replicaSets] = freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "20"}
			}
			store := newStore(rvtracker.New(rvtracker.Options{}), "deployment",
				map[schema.GroupResource]consistency.LastSyncRVGetter{deployments: &ds, replicaSets: &sets, pods: &podStore})
			store.ctx, store.prover = t.Context(), c
			ctx := consistency.WithOwnerRead(t.Context(), store, d, deploymentKind)
			err := consistency.ProveFresh(ctx, store, deployments, replicaSets, pods)
			require.Equal(t, tc.refused, err != nil, "%v", err)
			require.Equal(t, tc.refused, consistency.Again(err))
		})
	}
}

func podOfSet(name, version string, set types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: string(set), UID: set}, replicaSetKind)}}}
}
