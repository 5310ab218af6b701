// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Rules of S2 about statuses that others act on.
const (
	// RuleJobStatus is broken by a Job's status that its pods contradict.
	RuleJobStatus = "status of a Job that its pods contradict"
	// RuleCronJobStatus is broken by a CronJob's status that its Jobs contradict.
	RuleCronJobStatus = "status of a CronJob that its Jobs contradict"
)

// statusesWronged judges the statuses of Jobs and CronJobs whose creation is in the record. It needs jobs, cronjobs and pods recorded.
func (w *world) statusesWronged() (out []Violation) {
	anything := func(_, e truth.Event) bool { return e.Type == watch.Modified }
	for _, l := range w.of(truth.Jobs) {
		w.changes(l, "status", anything, func(before, e truth.Event, request *controlplane.AuditEvent) {
			if By(request) == JobController && l.born() {
				out = l.wronged(out, RuleJobStatus, e, w.jobContradicted(before.Object.(*batchv1.Job), e, request))
			}
		})
	}
	for _, l := range w.of(truth.CronJobs) {
		w.changes(l, "status", anything, func(before, e truth.Event, request *controlplane.AuditEvent) {
			if By(request) == CronJobController && l.born() {
				out = l.wronged(out, RuleCronJobStatus, e, w.cronJobContradicted(before.Object.(*batchv1.CronJob), e))
			}
		})
	}
	return out
}

// jobContradicted says what of a Job's status its pods contradict: more ends are counted than there were, or it has finished and a pod of it
// runs, or is Complete with fewer pods than it asks for.
func (w *world) jobContradicted(before *batchv1.Job, e truth.Event, request *controlplane.AuditEvent) string {
	job := e.Object.(*batchv1.Job)
	finishes := jobutil.IsJobFinished(job) && !jobutil.IsJobFinished(before)
	var succeeded, ended int32
	for _, l := range w.podsOf(job.UID) {
		var success, end bool
		for _, p := range l.events {
			if p.RV >= e.RV && !p.Initial {
				break
			}
			success = success || pod(p).Status.Phase == corev1.PodSucceeded
			end = end || pod(p).Status.Phase == corev1.PodFailed || deletes(p) || p.Type == watch.Deleted
		}
		if success {
			succeeded++
		}
		if end {
			ended++
		}
		if finishes && w.known(l, e.RV-1, request, func(e truth.Event) bool {
			ref := metav1.GetControllerOfNoCopy(pod(e))
			return ref != nil && ref.UID == job.UID && !Ended(pod(e)) && !deletes(e)
		}) {
			return "it has finished, and pod " + l.events[0].Name + " runs"
		}
	}
	switch s := job.Status; {
	case s.Succeeded > before.Status.Succeeded && s.Succeeded > succeeded:
		return fmt.Sprintf("%d pods are said to have succeeded, and %d have", s.Succeeded, succeeded)
	case s.Failed > before.Status.Failed && s.Failed > ended && !decided(job):
		return fmt.Sprintf("%d pods are said to have failed, and %d have ended", s.Failed, ended)
	case finishes && jobutil.IsJobSucceeded(job) && job.Spec.SuccessPolicy == nil && succeeded < jobAsksFor(job):
		return fmt.Sprintf("it is Complete, and %d of %d pods have succeeded", succeeded, jobAsksFor(job))
	}
	return ""
}

// jobAsksFor is how many pods must have succeeded before a Job is Complete.
func jobAsksFor(job *batchv1.Job) int32 {
	if job.Spec.Completions != nil {
		return *job.Spec.Completions
	}
	return 1
}

// cronJobContradicted says what of a CronJob's status its Jobs contradict: it has run a Job that nobody made, has succeeded by one that has
// not, or counts one as ended that runs.
func (w *world) cronJobContradicted(before *batchv1.CronJob, e truth.Event) string {
	cronJob := e.Object.(*batchv1.CronJob)
	was := func(is func(*batchv1.Job) bool) bool {
		return slices.ContainsFunc(w.dependents[cronJob.UID], func(l *life) bool {
			return l.resource == truth.Jobs && slices.ContainsFunc(l.events, func(j truth.Event) bool {
				return (j.RV < e.RV || j.Initial) && is(j.Object.(*batchv1.Job))
			})
		})
	}
	s := cronJob.Status
	if s.LastScheduleTime != nil && !s.LastScheduleTime.Equal(before.Status.LastScheduleTime) {
		name := fmt.Sprintf("%s-%d", cronJob.Name, s.LastScheduleTime.Unix()/60)
		if !was(func(job *batchv1.Job) bool { return job.Name == name }) {
			return "it is said to have run at " + s.LastScheduleTime.UTC().Format("15:04") + ", and there was no Job " + name
		}
	}
	if s.LastSuccessfulTime != nil && !s.LastSuccessfulTime.Equal(before.Status.LastSuccessfulTime) &&
		!was(func(job *batchv1.Job) bool { return job.Status.CompletionTime.Equal(s.LastSuccessfulTime) }) {
		return "it is said to have succeeded at " + s.LastSuccessfulTime.UTC().Format("15:04:05") + ", and no Job of it completed then"
	}
	for _, ref := range before.Status.Active {
		l := w.byUID[ref.UID]
		if l == nil || slices.ContainsFunc(s.Active, func(still corev1.ObjectReference) bool { return still.UID == ref.UID }) {
			continue
		}
		if job, there := l.at(e.RV - 1); there && l.resource == truth.Jobs && !deletes(job) && !jobutil.IsJobFinished(job.Object.(*batchv1.Job)) {
			return "Job " + ref.Name + " is said to be active no more, and runs"
		}
	}
	return ""
}
