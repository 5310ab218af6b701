// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// CountOf is the name by which a quota counts all objects of a resource.
func CountOf(r *Resource) corev1.ResourceName {
	return corev1.ResourceName("count/" + r.GroupResource().String())
}

// charges are what an object is counted by when it is made.
func charges(r *Resource) []corev1.ResourceName {
	if r == Pods {
		return []corev1.ResourceName{corev1.ResourcePods, CountOf(r)}
	}
	return []corev1.ResourceName{CountOf(r)}
}

// admit adds an object if the quotas of its namespace have room, and charges them, as the apiserver's admission does: by what they
// published last.
func (s *Server) admit(r *Resource, o Object) error {
	var charged []*corev1.ResourceQuota
	for key, object := range s.stores[Quotas].objects {
		if key.Namespace != o.GetNamespace() {
			continue
		}
		quota := object.DeepCopyObject().(*corev1.ResourceQuota)
		for _, name := range charges(r) {
			hard, counted := quota.Status.Hard[name]
			if !counted {
				continue
			}
			used, known := quota.Status.Used[name]
			if used.Add(apiresource.MustParse("1")); !known || used.Cmp(hard) > 0 {
				return Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("exceeded quota: %s, requested: %s=1", quota.Name, name), 0)
			}
			quota.Status.Used[name] = used
		}
		charged = append(charged, quota)
	}
	if err := s.insert(r, o); err != nil {
		return err
	}
	for _, quota := range charged {
		s.update(Quotas, s.stores[Quotas].objects[keyOf(quota)], quota)
	}
	return nil
}

// Evict deletes a pod if the budgets over it allow it, as the apiserver does: by what they published last. It reports whether
// they did.
func (s *Server) Evict(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, _ := s.stores[Pods].objects[keyOf(pod)].(*corev1.Pod)
	if now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
		return false
	}
	var over []*policyv1.PodDisruptionBudget
	for key, object := range s.stores[Budgets].objects {
		budget := object.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || key.Namespace != pod.Namespace || !selector.Matches(labels.Set(now.Labels)) {
			continue
		}
		if budget.Status.ObservedGeneration < budget.Generation || budget.Status.DisruptionsAllowed <= 0 {
			return false
		}
		over = append(over, budget)
	}
	for _, budget := range over {
		budget.Status.DisruptionsAllowed--
		if budget.Status.DisruptedPods == nil {
			budget.Status.DisruptedPods = map[string]metav1.Time{}
		}
		budget.Status.DisruptedPods[pod.Name] = metav1.NewTime(time.Now()).Rfc3339Copy()
		s.update(Budgets, s.stores[Budgets].objects[types.NamespacedName{Namespace: budget.Namespace, Name: budget.Name}], budget)
	}
	s.terminate(Pods, now, nil, nil)
	return true
}
