// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// newCronJob is due each minute.
func newCronJob(c schedule.CronJob) *batchv1.CronJob {
	keep := int32(c.Keep)
	var deadline *int64
	if c.Deadline > 0 {
		deadline = &c.Deadline
	}
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: c.Name}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ConcurrencyPolicy(c.Policy), Suspend: new(false), SuccessfulJobsHistoryLimit: &keep, FailedJobsHistoryLimit: &keep,
		StartingDeadlineSeconds: deadline,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(30)),
			SchedulerName: corev1.DefaultSchedulerName, DNSPolicy: corev1.DNSClusterFirst,
		}}}},
	}}
}

func (t *Traffic) suspend(name string, on bool) {
	model.Change(t.server, model.CronJobs, Namespace, name, func(c *batchv1.CronJob) { c.Spec.Suspend = &on })
}

// doForCronJob does what a step of somebody else's work on a CronJob and its Jobs says. It reports whether the step is one.
func (t *Traffic) doForCronJob(s schedule.Step) bool {
	switch s.Action {
	case schedule.AddJob:
		t.makeJob(s.Target, fmt.Sprint(s.Target, "-by-hand-", s.At.Milliseconds()), true)
	case schedule.TakeName:
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		t.makeJob(s.Target, fmt.Sprint(s.Target, "-", next.Unix()/60), s.N == 0)
	case schedule.DropJob:
		if job := t.jobOf(s.Target, s.N, func(*batchv1.Job) bool { return true }); job != nil {
			t.server.Delete(model.Jobs, Namespace, job.Name, nil)
		}
	case schedule.PauseJob:
		if job := t.jobOf(s.Target, s.N, func(job *batchv1.Job) bool { return !jobutil.IsJobFinished(job) }); job != nil {
			pause := func(on bool) {
				model.Change(t.server, model.Jobs, Namespace, job.Name, func(now *batchv1.Job) {
					if now.UID == job.UID {
						now.Spec.Suspend = &on
					}
				})
			}
			pause(true)
			t.After(s.For, func() { pause(false) })
		}
	case schedule.SetKeep:
		model.Change(t.server, model.CronJobs, Namespace, s.Target, func(c *batchv1.CronJob) {
			keep := int32(s.N)
			c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = &keep, &keep
		})
	case schedule.RemakeCronJob:
		if old := t.cronJob(s.Target); old != nil {
			t.server.Delete(model.CronJobs, Namespace, s.Target, nil)
			t.After(collectTime, func() { t.collectJobs(old.UID) })
			t.After(s.Delay, func() {
				t.server.TryCreate(model.CronJobs, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.Target}, Spec: old.Spec})
			})
		}
	default:
		return false
	}
	return true
}

func (t *Traffic) cronJob(name string) (found *batchv1.CronJob) {
	t.server.Look(func(truth model.Truth) { found, _ = truth.Get(model.CronJobs, Namespace, name).(*batchv1.CronJob) })
	return found
}

// makeJob makes a Job by the CronJob's template, as somebody else does.
func (t *Traffic) makeJob(cronJob, name string, controlled bool) {
	c := t.cronJob(cronJob)
	if c == nil {
		return
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Spec: *c.Spec.JobTemplate.Spec.DeepCopy()}
	if controlled {
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind(model.CronJobs.Kind))}
	}
	t.server.TryCreate(model.Jobs, job)
}

// jobOf is the nth of those Jobs of a CronJob, if it has any.
func (t *Traffic) jobOf(cronJob string, n int, of func(*batchv1.Job) bool) *batchv1.Job {
	var jobs []*batchv1.Job
	t.server.Look(func(truth model.Truth) {
		owner := model.Owner{Kind: model.CronJobs.Kind, NamespacedName: types.NamespacedName{Namespace: Namespace, Name: cronJob}}
		for _, o := range truth.Owned(model.Jobs, owner) {
			if job := o.(*batchv1.Job); of(job) {
				jobs = append(jobs, job)
			}
		}
	})
	if len(jobs) == 0 {
		return nil
	}
	return jobs[n%len(jobs)]
}

// collectJobs removes the Jobs of a CronJob that is gone, as the garbage collector does.
func (t *Traffic) collectJobs(cronJob types.UID) {
	var jobs []model.Object
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.Jobs) {
			if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.UID == cronJob {
				jobs = append(jobs, o)
			}
		}
	})
	for _, job := range jobs {
		t.server.Delete(model.Jobs, job.GetNamespace(), job.GetName(), nil)
	}
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
