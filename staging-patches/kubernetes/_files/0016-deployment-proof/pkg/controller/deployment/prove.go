// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

var deploymentGroupResource, replicaSetGroupResource, podGroupResource = apps.Resource("deployments"), apps.Resource("replicasets"), v1.Resource("pods")

func newConsistencyStore(deployments appsinformers.DeploymentInformer, replicaSets appsinformers.ReplicaSetInformer, pods coreinformers.PodInformer) consistencyutil.ConsistencyStore {
	return consistencyutil.NewIfProvided("deployment", map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		deploymentGroupResource: deployments.Informer().GetStore(),
		replicaSetGroupResource: replicaSets.Informer().GetStore(),
		podGroupResource:        pods.Informer().GetStore(),
	})
}

// begin reads a Deployment once the caches have all that was written for it. The requests made with the context are made for it.
func (dc *DeploymentController) begin(ctx context.Context, namespace, name string) (context.Context, *apps.Deployment, error) {
	owner := types.NamespacedName{Namespace: namespace, Name: name}
	if err := dc.consistencyStore.EnsureReady(owner); err != nil {
		return ctx, nil, err
	}
	d, err := dc.dLister.Deployments(namespace).Get(name)
	if errors.IsNotFound(err) {
		dc.consistencyStore.Clear(owner, "")
	} else if err == nil {
		ctx = consistencyutil.WithOwnerRead(ctx, dc.consistencyStore, d, controllerKind)
	}
	return ctx, d, err
}

// proveStart asks for proof that no old pods run before a Deployment that recreates starts new ones. Its first ReplicaSet waits for nothing.
func (dc *DeploymentController) proveStart(ctx context.Context, d *apps.Deployment, newRS *apps.ReplicaSet, oldRSs []*apps.ReplicaSet) error {
	if len(oldRSs) == 0 || newRS != nil && *newRS.Spec.Replicas >= *d.Spec.Replicas {
		return nil
	}
	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource, podGroupResource)
}

// scaleProven is scale, but a paused Deployment that recreates starts no pods beside old ones, whose deletion may have waited for a proof.
func (dc *DeploymentController) scaleProven(ctx context.Context, d *apps.Deployment, newRS *apps.ReplicaSet, oldRSs []*apps.ReplicaSet) error {
	if !util.IsRollingUpdate(d) && newRS != nil && *newRS.Spec.Replicas == 0 && len(controller.FilterActiveReplicaSets(oldRSs)) == 0 && consistencyutil.Proves(dc.consistencyStore) {
		if podMap, err := dc.getPodMapForDeployment(d, oldRSs); err != nil || oldPodsRunning(newRS, oldRSs, podMap) {
			return err
		}
		if err := dc.proveStart(ctx, d, newRS, oldRSs); err != nil {
			return err
		}
	}
	return dc.scale(ctx, d, newRS, oldRSs)
}

// proveScaleDown asks for proof of what a ReplicaSet is scaled down for: in a rolling update also of the pods, of which enough must be available.
func (dc *DeploymentController) proveScaleDown(ctx context.Context, rs *apps.ReplicaSet, newScale int32, d *apps.Deployment) error {
	switch {
	case newScale >= *rs.Spec.Replicas:
		return nil
	case d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType:
		return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource)
	}
	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource, podGroupResource)
}

// proveCleanup asks for proof that a ReplicaSet is old and empty before it is deleted.
func (dc *DeploymentController) proveCleanup(ctx context.Context) error {
	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource)
}

// waits reports whether an action is put off until the Deployment is back on the queue. The rest of the reconcile goes on.
func waits(err error) bool { return consistencyutil.Parked(err) && !consistencyutil.Again(err) }

// again is err if the reconcile is to be made once more at once, else nil.
func again(err error) error {
	if consistencyutil.Again(err) {
		return err
	}
	return nil
}
