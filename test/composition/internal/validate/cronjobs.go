// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const (
	// provenBefore is how long before a decision its proof may have been made.
	provenBefore = 2 * time.Second
	// unprovenMost is for how long a run waits at most where its CronJob can neither be proven nor read live.
	unprovenMost = 30 * time.Second
	// perRun is how many requests of one kind a run takes that stock does not make.
	perRun = 5
)

func cronJobOwner(name string) model.Owner {
	o := model.Owner{Kind: model.CronJobs.Kind}
	o.Namespace, o.Name = traffic.Namespace, name
	return o
}

// judgeRun judges a Job of a CronJob by what the CronJob and its other Jobs were at the server shortly before the request was sent.
func (j *Judge) judgeRun(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	if c, ok := old.(*batchv1.CronJob); ok && now == nil {
		j.gone[c.UID] = at
		delete(j.suspended, c.Name)
	}
	if c, ok := now.(*batchv1.CronJob); ok {
		if _, known := j.suspended[c.Name]; !*c.Spec.Suspend {
			delete(j.suspended, c.Name)
		} else if !known {
			j.suspended[c.Name] = at
		}
	}
	if r != model.Jobs || old != nil || now == nil {
		return
	}
	ref := metav1.GetControllerOfNoCopy(now)
	if ref == nil || ref.Kind != model.CronJobs.Kind || !isRun(now) {
		return
	}
	owner, since := cronJobOwner(ref.Name), j.values.sent.Add(-j.decided-provenBefore)
	if c := j.slow[owner]; j.values.sent.Sub(c.end) < slack {
		since = c.start.Add(-j.decided - provenBefore)
	}
	// A client tries a request again by itself that was answered with 429.
	if first, is := j.throttled[owner]; is && first.Add(-j.decided-provenBefore).Before(since) {
		since = first.Add(-j.decided - provenBefore)
	}
	if j.refused(at) {
		since = since.Add(-unprovenMost)
	}
	due, err := time.Parse(time.RFC3339, now.GetAnnotations()[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil {
		panic(err)
	}
	late := at.Sub(j.began).Round(time.Millisecond)
	if gone, is := j.gone[ref.UID]; is && gone.Before(since) {
		j.unjustified("run", "at %s %s runs, which is gone since %s", late, owner, gone.Sub(j.began).Round(time.Millisecond))
		return
	}
	runs := j.record.Runs[owner]
	if runs == nil {
		runs = map[time.Duration]time.Duration{}
		j.record.Runs[owner] = runs
	}
	cronJob, ok := truth.Get(model.CronJobs, owner.Namespace, owner.Name).(*batchv1.CronJob)
	ok = ok && cronJob.UID == ref.UID
	// A Job that somebody deletes before the status has it is made again.
	if was, twice := runs[due.Sub(j.began)]; twice && ok && cronJob.Status.LastScheduleTime != nil && !cronJob.Status.LastScheduleTime.Time.Before(due) {
		j.unjustified("run", "at %s %s runs a second time for one minute, first at %s", late, owner, was)
	}
	suspended, is := j.suspended[ref.Name]
	if is && suspended.Before(since) {
		j.unjustified("run", "at %s %s runs, which is suspended since %s", late, owner, suspended.Sub(j.began).Round(time.Millisecond))
		return
	}
	if ok && cronJob.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent {
		for _, o := range truth.Owned(model.Jobs, owner) {
			// What others make does not count for upstream, nor what the status has not, which may not be taken for a while.
			if other := o.(*batchv1.Job); other.UID != now.GetUID() && isRun(other) && !jobutil.IsJobFinished(other) && noted(cronJob, other) {
				j.unjustified("run", "at %s %s runs beside %s, which it forbids", late, owner, other.Name)
				return
			}
		}
	}
	runs[due.Sub(j.began)] = late
}

// refused says that CronJobs could neither be proven nor read live for a while up to now. Upstream goes on after some time, and so does ours.
func (j *Judge) refused(at time.Time) bool {
	return slices.ContainsFunc(j.refusals, func(s schedule.Step) bool {
		return s.Target == model.CronJobs.GroupVersionResource.Resource && !at.Before(j.began.Add(s.At)) && at.Before(j.began.Add(s.At+s.For+unprovenMost))
	})
}

// noted says that the CronJob's status has the Job.
func noted(cronJob *batchv1.CronJob, job *batchv1.Job) bool {
	return slices.ContainsFunc(cronJob.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
}

// throttle notes since when the requests that make a CronJob's Jobs are answered with 429.
func (j *Judge) throttle(r *model.Request) {
	if r.Resource != model.Jobs || r.Verb != "create" || r.Owner.Kind != model.CronJobs.Kind {
		return
	}
	if _, known := j.throttled[r.Owner]; r.Code != http.StatusTooManyRequests {
		delete(j.throttled, r.Owner)
	} else if !known {
		j.throttled[r.Owner] = r.Sent
	}
}

// lostRuns are those runs of ours that a lost event of CronJobs excuses: no proof by resource version shows it, so that ours does what stock
// does, and no more.
func lostRuns(s schedule.Schedule, stock, ours Record) bool {
	if !s.LosesCronJob() {
		return false
	}
	wrong, stocks := countRuns(ours), countRuns(stock)
	// The run of stock may be within what is allowed, and that of ours, which waited 2 s, not.
	return wrong <= stocks || wrong+rightRuns(ours) <= stocks+rightRuns(stock)
}

func rightRuns(r Record) (n int) {
	for _, runs := range r.Runs {
		n += len(runs)
	}
	return n
}

func countRuns(r Record) (n int) {
	for _, v := range r.Unjustified {
		if v.Rule == "run" {
			n++
		}
	}
	return n
}

// isRun says that a controller has made the Job.
func isRun(job model.Object) bool {
	return job.GetAnnotations()[batchv1.CronJobScheduledTimestampAnnotation] != ""
}

// compareRuns says which runs ours lacks or makes later, and what it asks of the server for them.
func compareRuns(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	for _, c := range s.CronJobs {
		owner, fault := cronJobOwner(c.Name), s.TouchedCronJob(c)
		more := moreRequests
		if s.LosesCronJob() {
			more *= 3 // Each status is refused until another event comes, and chance decides how many tries fit in until then.
		}
		for due := range ours.Runs[owner] {
			if _, made := stock.Runs[owner][due]; !made {
				more += perRun // Where an event was lost, stock may wait for a Job for ever that is gone.
			}
		}
		if s.HasFor(schedule.LoseEvent, "jobs") {
			more += 2 * doublings(s, schedule.Refuse, c.Name, queues.first) // That run may be refused until the end.
		}
		for what, n := range ours.Requests[owner] {
			if was := stock.Requests[owner][what]; n > was*5/4+more {
				add("requests", "%s: %d times %s, stock %d", owner, n, what, was)
			}
		}
		bound, missed := moreMost, 0
		if fault > 0 {
			bound = fault + afterFault
		}
		for due, was := range stock.Runs[owner] {
			switch made, ok := ours.Runs[owner][due]; {
			case !ok:
				missed++
			case made > was+bound:
				add("run latency", "%s: due at %s, made at %s, by stock at %s", owner, due, made, was)
			}
		}
		// What is late enough is skipped for the next one, as upstream skips it.
		if most := int((bound + time.Minute - 1) / time.Minute); missed > 0 && (fault == 0 || missed > most) {
			add("missed", "%s: %d of stock's %d runs", owner, missed, len(stock.Runs[owner]))
		}
	}
	return out
}
