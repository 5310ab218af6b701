// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1informers "k8s.io/client-go/informers/core/v1"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1beta1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newConsistencyStore puts the claims that wait back on the queue.
func (ec *Controller) newConsistencyStore(pods v1informers.PodInformer, podGroups schedulinginformers.PodGroupInformer) consistencyutil.ConsistencyStore {
	store := consistencyutil.NewIfProvided("resourceclaim", nil)
	consistencyutil.OnReady(store, ec.queue.Add)
	consistencyutil.Follow(store, v1.Resource("pods"), pods.Informer().GetStore())
	if ec.features.WorkloadResourceClaims {
		consistencyutil.Follow(store, schedulingapi.Resource("podgroups"), podGroups.Informer().GetStore())
	}
	return store
}

// enqueueReplaced has the claims of a pod looked at that is gone, where a relist shows another pod under its name.
func (ec *Controller) enqueueReplaced(logger klog.Logger, old, updated any) {
	was, wasPod := old.(*v1.Pod)
	is, isPod := updated.(*v1.Pod)
	if wasPod && isPod && was.UID != is.UID && consistencyutil.Proves(ec.consistencyStore) {
		ec.enqueuePod(logger, old, true)
	}
}

// needsNone reports whether nothing may be generated or reserved for the pod, as that would be deleted or dropped again at once, over and over.
func (ec *Controller) needsNone(pod *v1.Pod) bool {
	return consistencyutil.Proves(ec.consistencyStore) && isPodDone(pod)
}

// isGone reports whether a claim was not deleted as it is gone, or another has its name. The cache will show that; until then it would be tried over and over.
func (ec *Controller) isGone(err error) bool {
	return consistencyutil.Replaced(ec.consistencyStore, err) || apierrors.IsNotFound(err) && consistencyutil.Proves(ec.consistencyStore)
}

// keepUnproven adds to the consumers that remain those of which it is not sure that they need the claim no more.
func (ec *Controller) keepUnproven(ctx context.Context, claim *resourceapi.ResourceClaim, remaining []resourceapi.ResourceClaimConsumerReference) []resourceapi.ResourceClaimConsumerReference {
	if len(remaining) == len(claim.Status.ReservedFor) {
		return remaining
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(consumer resourceapi.ResourceClaimConsumerReference) bool {
		return !slices.Contains(remaining, consumer) && ec.done(ctx, claim, consumer)
	})
}

// podDone is done for a pod.
func (ec *Controller) podDone(ctx context.Context, claim *resourceapi.ResourceClaim, name string, uid types.UID) bool {
	return ec.done(ctx, claim, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: uid})
}

// done reports whether a consumer that seems to need the claim no more does so, by a proven cache or by the server. If it cannot be
// told now, the claim comes back to the queue. What was seen to be deleted or to have ended stays so, unless etcd is restored.
// That another object has the name says that this one is gone only if the cache is no older than the claim.
func (ec *Controller) done(ctx context.Context, claim *resourceapi.ResourceClaim, consumer resourceapi.ResourceClaimConsumerReference) bool {
	cached := func() (metav1.Object, error) { return ec.podLister.Pods(claim.Namespace).Get(consumer.Name) }
	// By default kube-controller-manager may list what it watches, but not get it.
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, consumer.Name).String()}
	live := func(ctx context.Context) (runtime.Object, error) {
		return ec.kubeClient.CoreV1().Pods(claim.Namespace).List(ctx, named)
	}
	if consumer.APIGroup == schedulingapi.GroupName {
		cached = func() (metav1.Object, error) { return ec.podGroupLister.PodGroups(claim.Namespace).Get(consumer.Name) }
		live = func(ctx context.Context) (runtime.Object, error) {
			return ec.kubeClient.SchedulingV1beta1().PodGroups(claim.Namespace).List(ctx, named)
		}
	}
	needed := func(o metav1.Object) bool {
		pod, isPod := o.(*v1.Pod)
		return o.GetName() == consumer.Name && o.GetUID() == consumer.UID && !(isPod && isPodDone(pod))
	}
	seen, err := cached()
	done := consistencyutil.Decide(ctx, consistencyutil.Decision{
		Action:   strings.Join([]string{consumer.Resource, consumer.Name, string(consumer.UID)}, "/"),
		Resource: schema.GroupResource{Group: consumer.APIGroup, Resource: consumer.Resource},
		Now:      err == nil && seen.GetUID() != consumer.UID && !ec.deletedObjects.Has(consumer.UID),
		Cached: func() bool {
			o, err := cached()
			return apierrors.IsNotFound(err) || err == nil && !needed(o)
		},
		Read: func(ctx context.Context) (bool, error) {
			list, err := live(ctx)
			if err != nil {
				return false, err
			}
			done := true
			err = meta.EachListItem(list, func(item runtime.Object) error {
				o, err := meta.Accessor(item)
				done = done && err == nil && !needed(o)
				return err
			})
			return done && err == nil, err
		},
	})
	if !done {
		klog.FromContext(ctx).V(4).Info("Keeping what may still be needed", "consumer", consumer)
	}
	return done
}
