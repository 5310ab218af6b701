// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetainteviction

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// evictor is what the controller hands to its guard.
func (tc *Controller) evictor() consistencyutil.DeviceEvictor {
	return consistencyutil.DeviceEvictor{
		Client: tc.client, Claims: tc.claimInformer.Lister(), Rules: tc.ruleLister, Slices: tc.sliceInformer.Lister(),
		EvictionTime: tc.evictionTime, Recheck: tc.recheck,
	}
}

// evictionTime applies the controller's rules to the objects alone, as its simulation of a rule does.
func (tc *Controller) evictionTime(eviction consistencyutil.DeviceEviction, taints consistencyutil.DeviceTaints) (time.Time, bool) {
	judge := &Controller{
		logger:                        tc.logger.WithName("confirmation"),
		allocatedClaims:               map[types.NamespacedName]allocatedClaim{},
		pools:                         map[poolID]pool{},
		evictingRules:                 map[string]*resourceapi.DeviceTaintRule{},
		workloadResourceClaimsEnabled: tc.workloadResourceClaimsEnabled,
	}
	for _, slice := range taints.Slices {
		id := poolID{driverName: slice.Spec.Driver, poolName: slice.Spec.Pool.Name}
		p := judge.pools[id]
		p.addSlice(slice)
		judge.pools[id] = p
	}
	for _, rule := range taints.Rules {
		if rule.Spec.Taint.Effect == resourceapi.DeviceTaintEffectNoExecute {
			judge.evictingRules[rule.Name] = rule
		}
	}
	for _, claim := range taints.Claims {
		if claim.Status.Allocation != nil {
			judge.allocatedClaims[newNamespacedName(claim)] = allocatedClaim{ResourceClaim: claim, eviction: judge.claimEvictionTime(claim)}
		}
	}
	pod, err := tc.pod(eviction.Pod, eviction.UID)
	if err != nil {
		return time.Time{}, false
	}
	found := judge.podEvictionTime(pod)
	if found == nil {
		return time.Time{}, false
	}
	return found.when.Time, true
}

func (tc *Controller) recheck(eviction consistencyutil.DeviceEviction) {
	tc.mutex.Lock()
	defer tc.mutex.Unlock()
	if pod, err := tc.pod(eviction.Pod, eviction.UID); err == nil {
		tc.handlePod(pod)
	}
}

// pod is the cached pod with the UID.
func (tc *Controller) pod(name types.NamespacedName, uid types.UID) (*v1.Pod, error) {
	pod, err := tc.podLister.Pods(name.Namespace).Get(name.Name)
	if err == nil && pod.UID != uid {
		err = apierrors.NewNotFound(v1.Resource("pods"), name.Name)
	}
	return pod, err
}

// newConsistencyStore returns the provider's, if there is one.
func (tc *Controller) newConsistencyStore() consistencyutil.ConsistencyStore {
	stores := map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		v1.Resource("pods"):                    tc.podInformer.Informer().GetStore(),
		resourceapi.Resource("resourceclaims"): tc.claimInformer.Informer().GetStore(),
		resourceapi.Resource("resourceslices"): tc.sliceInformer.Informer().GetStore(),
	}
	if tc.ruleInformer != nil {
		stores[resourceapi.Resource("devicetaintrules")] = tc.ruleInformer.Informer().GetStore()
	}
	return consistencyutil.NewIfProvided("devicetainteviction", stores)
}

// confirm asks the guard about an eviction that is due. If it is not confirmed, it is cancelled, or due
// again after a while.
func (tc *Controller) confirm(ctx context.Context, podRef tainteviction.NamespacedObject, eviction evictionAndReason) (confirmed bool, againAfter time.Duration) {
	pod, err := tc.pod(podRef.NamespacedName, podRef.UID)
	if err != nil {
		tc.guard.CalledOff(podRef.UID) // It is gone, as the live read before the deletion will show.
		return true, 0
	}
	judged := guardedEviction(pod, eviction)
	decision := tc.guard.Judge(ctx, judged)
	tc.mutex.Lock()
	defer tc.mutex.Unlock()
	now, ok := tc.deletePodAt[podRef]
	switch {
	case !ok:
		tc.guard.CalledOff(podRef.UID)
		return false, 0
	case decision.Evict && judged.SameSources(guardedEviction(pod, now)):
		// It may have been put off meanwhile.
		againAfter := time.Until(now.when.Time)
		return againAfter <= 0, againAfter
	case !now.equal(&eviction):
		// The decision is not on what is due now: that is judged in turn.
		return false, max(time.Until(now.when.Time), time.Millisecond)
	case decision.Again > 0:
		return false, decision.Again
	}
	tc.cancelWorkWithEvent(podRef)
	return false, 0
}

func guardedEviction(pod *v1.Pod, eviction evictionAndReason) consistencyutil.DeviceEviction {
	e := consistencyutil.DeviceEviction{Pod: newNamespacedName(pod), UID: pod.UID, Due: eviction.when.Time}
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err != nil {
			utilruntime.HandleError(err)
		} else if name != nil {
			e.Claims = append(e.Claims, *name)
		}
	}
	for _, taint := range eviction.reason {
		if taint.rule != nil {
			e.Rules = append(e.Rules, taint.rule.Name)
			continue
		}
		pool := consistencyutil.DevicePool{Driver: taint.slice.slice.Spec.Driver, Pool: taint.slice.slice.Spec.Pool.Name}
		if !slices.Contains(e.Pools, pool) {
			e.Pools = append(e.Pools, pool)
		}
	}
	return e
}
