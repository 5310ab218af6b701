// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimTemplate is the name of the template of WithClaims: the claims are named after it, the StatefulSet and the pod's number.
const ClaimTemplate = "data"

// WithClaims gives a StatefulSet claims that go with its pods. The pods are put on a node, as nothing binds the claims.
func WithClaims(set *appsv1.StatefulSet, node string) *appsv1.StatefulSet {
	set.Spec.Template.Spec.NodeName = node
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: ClaimTemplate},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}
	return set
}
