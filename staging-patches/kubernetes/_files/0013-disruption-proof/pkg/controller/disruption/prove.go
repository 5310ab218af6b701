// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"slices"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1informers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

var (
	podGroupResource = v1.Resource("pods")
	// scaleGroupResources are those that pods' scale is counted by.
	scaleGroupResources = []schema.GroupResource{apps.Resource("deployments"), apps.Resource("replicasets"), apps.Resource("statefulsets"), v1.Resource("replicationcontrollers")}
)

// newConsistencyStore puts the budgets that wait back on the queue.
func (dc *DisruptionController) newConsistencyStore(pods coreinformers.PodInformer, d appsv1informers.DeploymentInformer, rs appsv1informers.ReplicaSetInformer,
	ss appsv1informers.StatefulSetInformer, rc coreinformers.ReplicationControllerInformer) consistencyutil.ConsistencyStore {
	store := consistencyutil.NewIfProvided("disruption", nil)
	consistencyutil.OnReady(store, dc.queue.Add)
	consistencyutil.Follow(store, podGroupResource, pods.Informer().GetStore())
	for i, cache := range []consistencyutil.LastSyncRVGetter{d.Informer().GetStore(), rs.Informer().GetStore(), ss.Informer().GetStore(), rc.Informer().GetStore()} {
		consistencyutil.Follow(store, scaleGroupResources[i], cache)
	}
	return store
}

// scaledBy are the resources by which the scale of the budget's pods is counted. Those of other kinds of owners make no difference
// to it. What is not in these caches is read from the server.
func (dc *DisruptionController) scaledBy(pdb *policy.PodDisruptionBudget) []schema.GroupResource {
	pods, err := dc.getPodsForPdb(pdb)
	if err != nil {
		return scaleGroupResources
	}
	var out []schema.GroupResource
	add := func(resource schema.GroupResource) {
		if !slices.Contains(out, resource) {
			out = append(out, resource)
		}
	}
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		switch {
		case ref == nil:
		case ref.Kind == controllerKindRS.Kind:
			add(apps.Resource("replicasets"))
			if rs, err := dc.rsLister.ReplicaSets(pod.Namespace).Get(ref.Name); err == nil && metav1.GetControllerOfNoCopy(rs) != nil {
				add(apps.Resource("deployments"))
			}
		case ref.Kind == controllerKindSS.Kind:
			add(apps.Resource("statefulsets"))
		case ref.Kind == controllerKindRC.Kind:
			add(v1.Resource("replicationcontrollers"))
		}
	}
	return out
}

// allowed is how many disruptions to allow, of so many by what was read: no more than before unless the caches are proven fresh. What was allowed under another
// spec counts as none. again is true if nothing but a newer reading is wanted, for which the budget is back on the queue.
func (dc *DisruptionController) allowed(ctx context.Context, pdb *policy.PodDisruptionBudget, byCache int32) (n int32, again bool) {
	before := pdb.Status.DisruptionsAllowed
	if pdb.Status.ObservedGeneration != pdb.Generation {
		before = 0
	}
	if byCache <= before {
		return byCache, false
	}
	resources := []schema.GroupResource{podGroupResource}
	if pdb.Spec.MaxUnavailable != nil || pdb.Spec.MinAvailable != nil && pdb.Spec.MinAvailable.Type == intstr.String {
		resources = append(resources, dc.scaledBy(pdb)...)
	}
	if err := consistencyutil.ProvePass(ctx, "", resources...); err != nil {
		return before, consistencyutil.Again(err)
	}
	return byCache, false
}
