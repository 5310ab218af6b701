// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	claimSet       = "web"
	claimTemplate  = "data"
	claimFinalizer = "lab.fresh-kcm.io/hold"
)

// claimOf names the claim of a replica.
func claimOf(ordinal int) string { return fmt.Sprintf("%s-%s-%d", claimTemplate, claimSet, ordinal) }

// createClaimSet creates a StatefulSet whose claims are deleted with its pods when it is scaled down.
func (r *Rig) createClaimSet(ctx context.Context, replicas int32) error {
	labels := map[string]string{"app": claimSet}
	no := false
	_, err := r.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: claimSet},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// Nothing here binds the claims, without which the scheduler would leave the pods.
					NodeName:                     r.Cluster.Nodes().Names()[0],
					AutomountServiceAccountToken: &no,
					Containers:                   []corev1.Container{{Name: "main", Image: "registry.invalid/sample"}},
				},
			},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: claimTemplate},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating StatefulSet default/%s: %w", claimSet, err)
	}
	return nil
}

func (r *Rig) scale(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := r.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Patch(ctx, claimSet, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling StatefulSet default/%s to %d: %w", claimSet, replicas, err)
	}
	return nil
}

// holdPod keeps a pod that is deleted from going, as a kubelet does that cannot stop it, or lets it go.
func (r *Rig) holdPod(ctx context.Context, pod string, hold bool) error {
	finalizers := "null"
	if hold {
		finalizers = `["` + claimFinalizer + `"]`
	}
	patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
	_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing the finalizers of pod default/%s: %w", pod, err)
	}
	return nil
}
