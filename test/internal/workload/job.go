// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Job returns a Job in the namespace default that runs so many pods at once, each of which succeeds.
func Job(name string, pods int32) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: batchv1.JobSpec{
			Parallelism: &pods,
			Completions: &pods,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{controlplane.CompleteLabel: "true"}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "main", Image: Image}},
				},
			},
		},
	}
}
