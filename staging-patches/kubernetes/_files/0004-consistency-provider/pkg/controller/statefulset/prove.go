// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// proveDeletion asks for proof of the set and its pods, unless the pod has failed or succeeded: then it is to be replaced.
func (om *realStatefulPodControlObjectManager) proveDeletion(pod *v1.Pod) error {
	if isTerminalPhase(pod) {
		return nil
	}
	return consistencyutil.ProveFresh(om.requests(), om.consistencyStore, statefulSetGroupResource, podGroupResource)
}

// proveClaim is proveDeletion for a claim that gets another owner, which takes the claim along when it is deleted.
func (om *realStatefulPodControlObjectManager) proveClaim(claim *v1.PersistentVolumeClaim) error {
	has, err := om.GetClaim(claim.Namespace, claim.Name)
	if err == nil && !slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return !slices.ContainsFunc(has.OwnerReferences, func(old metav1.OwnerReference) bool { return old.UID == ref.UID })
	}) {
		return nil
	}
	return consistencyutil.ProveFresh(om.requests(), om.consistencyStore, statefulSetGroupResource, podGroupResource)
}
