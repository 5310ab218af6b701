// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJob returns a CronJob in the namespace default that runs every minute a Job without pods, which is complete at once.
func CronJob(name string) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: batchv1.CronJobSpec{
			Schedule:    "* * * * *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: Job(name, 0).Spec},
		},
	}
}
