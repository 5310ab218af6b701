// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setJobDefaults is what the apiserver adds to a Job that a client has made of a short template.
func setJobDefaults(job *batchv1.Job) {
	if job.Spec.Selector != nil {
		return
	}
	one := int32(1)
	spec := &job.Spec
	spec.Parallelism, spec.Completions, spec.BackoffLimit = &one, &one, new(int32(6))
	spec.Suspend, spec.CompletionMode, spec.PodReplacementPolicy = new(false), new(batchv1.NonIndexedCompletion), new(batchv1.TerminatingOrFailed)
	labels := map[string]string{batchv1.ControllerUidLabel: string(job.UID), batchv1.JobNameLabel: job.Name}
	spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	spec.Template.Labels = labels
	spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
}
