// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// countedAgain is how long after a value was published it is counted once more.
const countedAgain = time.Second

// newConsistencyStore puts the quotas whose values wait back on the queue.
func (rq *Controller) newConsistencyStore() consistencyutil.ConsistencyStore {
	store := consistencyutil.NewIfProvided("resourcequota", nil)
	consistencyutil.OnReady(store, rq.queue.Add)
	return store
}

// follow tells the store of the cache by which objects of the resource are counted, and returns the BookmarkFunc of the event handler of that resource.
// After a relist all quotas of the resource are recalculated: no event has told of an object that was made and deleted since the last one,
// and that of one that was made and ended, or that took the name of another, has upstream recalculate nothing.
func (qm *QuotaMonitor) follow(ctx context.Context, resource schema.GroupVersionResource, shared informers.GenericInformer) (bookmark func(resourceVersion string)) {
	cache := shared.Informer().GetStore()
	consistencyutil.Follow(qm.consistencyStore, resource.GroupResource(), cache)
	if resource.GroupResource() == resourceClaims && qm.consistencyStore != nil {
		// The registry has an informer of them, and counts by what its event handler keeps of them.
		if classes, err := qm.informerFactory.ForResource(resourceapi.SchemeGroupVersion.WithResource(deviceClasses.Resource)); err == nil {
			consistencyutil.Follow(qm.consistencyStore, deviceClasses, consistencyutil.Handled(classes.Informer()))
		}
	}
	return consistencyutil.AfterLists(qm.consistencyStore, cache, func() {
		qm.replenishmentFunc(ctx, resource.GroupResource(), metav1.NamespaceAll)
	})
}

// keepUnproven leaves what would fall in usage as it was, and what would be new out, unless the caches by which it was counted are proven fresh. Each value is
// proven by itself. later is true if nothing but a newer reading is wanted, for which the quota is back on the queue, and there is nothing to publish before.
func (rq *Controller) keepUnproven(ctx context.Context, resourceQuota *v1.ResourceQuota, usage v1.ResourceList) (later bool) {
	rises := false
	var first, waits []v1.ResourceName
	for name, value := range usage {
		old, known := resourceQuota.Status.Used[name]
		if known && value.Cmp(old) >= 0 {
			rises = rises || value.Cmp(old) > 0
			continue
		}
		prove := consistencyutil.ProvePass
		if !known {
			prove = consistencyutil.ProveFirst
		}
		err := prove(ctx, string(name), rq.countedBy(name)...)
		switch {
		case err == nil:
			rises = true
			if !known {
				first = append(first, name)
			}
			continue
		case !consistencyutil.Again(err):
			rises = true // It takes long, so the rest is published.
		}
		waits = append(waits, name)
		if known {
			usage[name] = old
		} else {
			delete(usage, name)
		}
	}
	rq.countAgain(resourceQuota, usage, first, waits, rises)
	return len(waits) > 0 && !rises
}

// countAgain counts what is published for the first time once more now, as the proof took time, and has the quota recalculated soon after anything is
// published, if need be. Until its first value is published the apiserver lets in what it does not charge; a value that falls takes back the charge for an
// object that is being made; and one that was counted between two events may be found right, by the quota as it was before. Nothing else recalculates it then. What waits comes back by itself.
func (rq *Controller) countAgain(resourceQuota *v1.ResourceQuota, usage v1.ResourceList, first, waits []v1.ResourceName, publishes bool) {
	if !publishes || !consistencyutil.Proves(rq.consistencyStore) {
		return
	}
	if len(first) > 0 {
		spec := resourceQuota.Spec
		// What could not be counted is left as it was counted before.
		now, _ := quota.CalculateUsage(resourceQuota.Namespace, spec.Scopes, spec.Hard, rq.registry, spec.ScopeSelector)
		maps.Copy(usage, quota.Mask(now, first))
	}
	// A retry would come in the place of what was to be added to the queue later.
	time.AfterFunc(countedAgain, func() { rq.addIfWrong(resourceQuota, usage, quota.Difference(quota.ResourceNames(usage), waits)) })
}

// addIfWrong has the quota recalculated if it says less than there is, or is as it was published, and wrong in what was decided. It says more while an object is made, which
// is charged first: that charge would be taken back. One that could not be written is left to the queue's backoff.
func (rq *Controller) addIfWrong(made *v1.ResourceQuota, published v1.ResourceList, decided []v1.ResourceName) {
	rq.workerLock.RLock()
	defer rq.workerLock.RUnlock()
	key := klog.KObj(made).String()
	if q, err := rq.rqLister.ResourceQuotas(made.Namespace).Get(made.Name); err == nil && rq.queue.NumRequeues(key)+rq.missingUsageQueue.NumRequeues(key) == 0 {
		now, _ := quota.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, rq.registry, q.Spec.ScopeSelector)
		if enough, _ := quota.LessThanOrEqual(now, q.Status.Used); !enough || quota.Equals(q.Status.Used, published) && !quota.Equals(quota.Mask(now, decided), quota.Mask(published, decided)) {
			rq.addQuota(klog.Background(), q)
		}
	}
}

// countedBy are the resources of which the value is a sum.
func (rq *Controller) countedBy(name v1.ResourceName) []schema.GroupResource {
	var out []schema.GroupResource
	for _, evaluator := range rq.registry.List() {
		if len(evaluator.MatchingResources([]v1.ResourceName{name})) == 0 {
			continue
		}
		out = append(out, evaluator.GroupResource())
		if evaluator.GroupResource() == resourceClaims {
			out = append(out, v1.Resource("pods")) // It looks up the pods that claims were made for.
		}
	}
	if extended, ok := strings.CutPrefix(string(name), v1.DefaultResourceRequestsPrefix); ok && strings.Contains(extended, "/") {
		// Which claims count, if any, a device class says.
		out = append(out, resourceClaims, v1.Resource("pods"), deviceClasses)
	}
	slices.SortFunc(out, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

var resourceClaims, deviceClasses = resourceapi.Resource("resourceclaims"), resourceapi.Resource("deviceclasses")
