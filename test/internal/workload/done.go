// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// DeploymentDone reports whether a Deployment has all its pods, of its newest template and available, and no others.
func DeploymentDone(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && each(*d.Spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
}

// StatefulSetDone is DeploymentDone for a StatefulSet.
func StatefulSetDone(set *appsv1.StatefulSet) bool {
	s := set.Status
	return s.ObservedGeneration == set.Generation && each(*set.Spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
}

// each reports whether each number is as wanted.
func each(want int32, numbers ...int32) bool {
	return !slices.ContainsFunc(numbers, func(n int32) bool { return n != want })
}

// JobComplete reports whether a Job is complete.
func JobComplete(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}
