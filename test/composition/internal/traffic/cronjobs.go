// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// newCronJob is due each minute.
func newCronJob(c schedule.CronJob) *batchv1.CronJob {
	keep := int32(c.Keep)
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: c.Name}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ConcurrencyPolicy(c.Policy), Suspend: new(false), SuccessfulJobsHistoryLimit: &keep, FailedJobsHistoryLimit: &keep,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(30)),
			SchedulerName: corev1.DefaultSchedulerName, DNSPolicy: corev1.DNSClusterFirst,
		}}}},
	}}
}

func (t *Traffic) suspend(name string, on bool) {
	model.Change(t.server, model.CronJobs, Namespace, name, func(c *batchv1.CronJob) { c.Spec.Suspend = &on })
}

// collect removes the pods of a Job that is gone, as the garbage collector does.
func (t *Traffic) collect(job *batchv1.Job) {
	var pods []model.Object
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.Pods) {
			if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.UID == job.UID {
				pods = append(pods, o)
			}
		}
	})
	for _, pod := range pods {
		model.Change(t.server, model.Pods, pod.GetNamespace(), pod.GetName(), func(p *corev1.Pod) { p.Finalizers = nil })
		t.server.Delete(model.Pods, pod.GetNamespace(), pod.GetName(), new(int64(0)))
	}
}
