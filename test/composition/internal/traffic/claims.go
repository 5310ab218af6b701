// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	claimTemplate = "devices"
	// retryTime is how soon what is to be made again is tried again while the last of its name is there.
	retryTime = ScheduleTime
)

// allocated is the device that all claims get.
var allocated = resourcev1.DeviceRequestAllocationResult{Request: "device", Driver: driver, Pool: "pool", Device: "device"}

// SharedClaim is the name of the nth claim that pods share.
func SharedClaim(n int) string { return fmt.Sprint("shared-", n) }

// startClaimers makes the pods that claim devices.
func (t *Traffic) startClaimers(s schedule.Schedule) {
	t.claimers = s.Claimers
	if len(s.Claimers) == 0 {
		return
	}
	t.server.Create(model.ClaimTemplates, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: claimTemplate}})
	for _, c := range s.Claimers {
		for _, n := range c.Shared {
			t.server.TryCreate(model.ResourceClaims, sharedClaim(SharedClaim(n)))
		}
		t.After(startTime, func() { t.server.TryCreate(model.Pods, t.claimingPod(c)) })
	}
}

func sharedClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
}

func (t *Traffic) claimingPod(c schedule.Claimer) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: c.Name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(30)),
	}}
	for i := range c.Own {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprint("own-", i), ResourceClaimTemplateName: new(claimTemplate)})
	}
	for _, n := range c.Shared {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: SharedClaim(n), ResourceClaimName: new(SharedClaim(n))})
	}
	if c.Bound {
		pod.Spec.NodeName = t.nodes[0].name
	}
	return pod
}

// ClaimsOf are the claims that a pod may use, one for each of its entries; nil where it has none yet. One of its own must be its.
func ClaimsOf(truth model.Truth, pod *corev1.Pod) (claims []*resourcev1.ResourceClaim) {
	for _, entry := range pod.Spec.ResourceClaims {
		name, own := "", entry.ResourceClaimName == nil
		if !own {
			name = *entry.ResourceClaimName
		}
		for _, s := range pod.Status.ResourceClaimStatuses {
			if own && s.Name == entry.Name {
				name = *s.ResourceClaimName
			}
		}
		claim, _ := truth.Get(model.ResourceClaims, pod.Namespace, name).(*resourcev1.ResourceClaim)
		if claim != nil && own && !metav1.IsControlledBy(claim, pod) {
			claim = nil
		}
		claims = append(claims, claim)
	}
	return claims
}

// ReservedFor says that a claim is.
func ReservedFor(claim *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool { return c.UID == pod })
}

// reserved says that a pod may start: all its claims are reserved for it.
func (t *Traffic) reserved(pod *corev1.Pod) (all bool) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return true
	}
	t.server.Look(func(truth model.Truth) {
		now, _ := truth.Get(model.Pods, pod.Namespace, pod.Name).(*corev1.Pod)
		all = now == nil || now.UID != pod.UID || !slices.ContainsFunc(ClaimsOf(truth, now), func(c *resourcev1.ResourceClaim) bool { return c == nil || !ReservedFor(c, pod.UID) })
	})
	return all
}

// changedClaim has the scheduler look at pods that wait for their claims, and, as the garbage collector does, removes the claims of pods that are gone.
func (t *Traffic) changedClaim(old, now model.Object) {
	if len(t.claimers) == 0 || t.ended.Load() {
		return
	}
	_, claim := now.(*resourcev1.ResourceClaim)
	_, pod := now.(*corev1.Pod)
	if claim || pod {
		t.After(ScheduleTime, t.scheduleClaims)
	}
	if _, pod := old.(*corev1.Pod); pod && now == nil || claim && old == nil {
		t.After(collectTime, t.collectClaims)
	}
}

// scheduleClaims allocates and reserves the claims of pods that have all of them, and binds these soon after.
func (t *Traffic) scheduleClaims() {
	type work struct {
		pod    *corev1.Pod
		claims []*resourcev1.ResourceClaim
	}
	var todo []work
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.Pods) {
			pod := o.(*corev1.Pod)
			if len(pod.Spec.ResourceClaims) == 0 || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
				continue
			}
			claims := ClaimsOf(truth, pod)
			if !slices.ContainsFunc(claims, func(c *resourcev1.ResourceClaim) bool { return c == nil || c.DeletionTimestamp != nil }) {
				todo = append(todo, work{pod, claims})
			}
		}
	})
	for _, w := range todo {
		for _, claim := range w.claims {
			model.Change(t.server, model.ResourceClaims, claim.Namespace, claim.Name, func(c *resourcev1.ResourceClaim) {
				if c.UID != claim.UID || c.DeletionTimestamp != nil || ReservedFor(c, w.pod.UID) {
					return
				}
				if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
					c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
				}
				if c.Status.Allocation == nil {
					c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{allocated}}}
				}
				c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: w.pod.Name, UID: w.pod.UID})
			})
		}
		t.After(ScheduleTime, func() {
			if t.reserved(w.pod) {
				t.change(w.pod, func(p *corev1.Pod) { p.Spec.NodeName = t.nodes[1].name })
			}
		})
	}
}

func (t *Traffic) collectClaims() {
	var left []model.Object
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.ResourceClaims) {
			ref := metav1.GetControllerOfNoCopy(o)
			if ref == nil || o.GetDeletionTimestamp() != nil {
				continue
			}
			if pod := truth.Get(model.Pods, o.GetNamespace(), ref.Name); pod == nil || pod.GetUID() != ref.UID {
				left = append(left, o)
			}
		}
	})
	for _, o := range left {
		t.server.Delete(model.ResourceClaims, o.GetNamespace(), o.GetName(), nil)
	}
}

// doForClaimer does what a step of work on a pod that claims devices says. It reports whether the step is one.
func (t *Traffic) doForClaimer(s schedule.Step) bool {
	switch s.Action {
	case schedule.EndClaimer:
		model.Change(t.server, model.Pods, Namespace, s.Target, func(p *corev1.Pod) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				p.Status.Phase, p.Status.Conditions = corev1.PodSucceeded, nil
			}
		})
	case schedule.RemakeClaimer:
		for _, c := range t.claimers {
			if c.Name == s.Target {
				var grace *int64
				if s.N > 0 {
					grace = new(int64(s.N))
				}
				t.server.Delete(model.Pods, Namespace, c.Name, grace)
				t.whenGone(model.Pods, c.Name, func() { t.After(s.Delay, func() { t.server.TryCreate(model.Pods, t.claimingPod(c)) }) })
			}
		}
	case schedule.DropClaim:
		if claim := t.claimOf(s.Target, s.N); claim != nil {
			t.server.Delete(model.ResourceClaims, Namespace, claim.Name, nil)
			if metav1.GetControllerOfNoCopy(claim) == nil {
				t.whenGone(model.ResourceClaims, claim.Name, func() { t.server.TryCreate(model.ResourceClaims, sharedClaim(claim.Name)) })
			}
		}
	case schedule.TouchClaim:
		if claim := t.claimOf(s.Target, s.N); claim != nil {
			model.Change(t.server, model.ResourceClaims, Namespace, claim.Name, func(c *resourcev1.ResourceClaim) {
				c.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: c.Annotations[resourcev1.PodResourceClaimAnnotation], "example.com/touched": s.At.String()}
			})
		}
	case schedule.TaintDevices:
		t.server.Create(model.DeviceSlices, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: allocated.Pool}, Spec: resourcev1.ResourceSliceSpec{
			Driver: allocated.Driver, Pool: resourcev1.ResourcePool{Name: allocated.Pool, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: allocated.Device, Taints: []resourcev1.DeviceTaint{{Key: TroubleTaint.Key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.Now().Rfc3339Copy())}}}},
		}})
	default:
		return false
	}
	return true
}

// whenGone calls f once there is no such object.
func (t *Traffic) whenGone(r *model.Resource, name string, f func()) {
	there := false
	t.server.Look(func(truth model.Truth) { there = truth.Get(r, Namespace, name) != nil })
	if there {
		t.After(retryTime, func() { t.whenGone(r, name, f) })
		return
	}
	f()
}

// claimOf is the nth claim of a pod, if it has any.
func (t *Traffic) claimOf(pod string, n int) (claim *resourcev1.ResourceClaim) {
	t.server.Look(func(truth model.Truth) {
		if p, ok := truth.Get(model.Pods, Namespace, pod).(*corev1.Pod); ok {
			if claims := ClaimsOf(truth, p); len(claims) > 0 {
				claim = claims[n%len(claims)]
			}
		}
	})
	return claim
}
