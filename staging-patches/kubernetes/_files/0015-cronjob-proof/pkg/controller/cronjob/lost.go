// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"
)

// findLost adds to the status of a CronJob that is due the Job of an earlier run whose creation failed, if the server has it all the same and the
// CronJob waited for its caches after that: upstream tries again at once and finds it. It returns whether the status has changed.
func (jm *ControllerV2) findLost(cronJob *batchv1.CronJob, due time.Time) (bool, error) {
	key := cache.MetaObjectToName(cronJob).String()
	name := jm.lost.waited(key)
	if name == "" || name == getJobName(cronJob, due) {
		return false, nil
	}
	job, err := jm.jobControl.GetJob(cronJob.Namespace, name)
	if err != nil && !errors.IsNotFound(err) {
		return false, err
	}
	if err != nil || !metav1.IsControlledBy(job, cronJob) || inActiveList(cronJob, job.UID) || jobutil.IsJobFinished(job) {
		jm.lost.forget(key)
		return false, nil
	}
	ref, err := getRef(job)
	if err != nil {
		return false, fmt.Errorf("refer to Job %s of CronJob %s: %w", name, key, err)
	}
	cronJob.Status.Active = append(cronJob.Status.Active, *ref)
	return true, nil
}

// noting notes the Jobs of a CronJob whose creation fails.
type noting struct {
	jobControlInterface
	key  string
	lost *lostJobs
}

func (n noting) CreateJob(namespace string, job *batchv1.Job) (*batchv1.Job, error) {
	created, err := n.jobControlInterface.CreateJob(namespace, job)
	if err != nil {
		n.lost.note(n.key, job.Name)
	} else {
		n.lost.forget(n.key)
	}
	return created, err
}

// lostJobs has, for each CronJob whose last creation of a Job failed, the name of that Job. Its methods may be called concurrently.
type lostJobs struct {
	mu   sync.Mutex
	jobs map[string]lostJob
}

type lostJob struct {
	name   string
	waited bool // the CronJob waited for its caches after it
}

func (l *lostJobs) note(key, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs == nil {
		l.jobs = map[string]lostJob{}
	}
	l.jobs[key] = lostJob{name: name}
}

// wait notes that the CronJob waits for its caches: it is not tried again at once.
func (l *lostJobs) wait(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if job, ok := l.jobs[key]; ok {
		job.waited = true
		l.jobs[key] = job
	}
}

// waited is the name of the Job whose creation failed before the CronJob waited, "" if there is none. A nil l has none.
func (l *lostJobs) waited(key string) string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if job := l.jobs[key]; job.waited {
		return job.name
	}
	return ""
}

func (l *lostJobs) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.jobs, key)
}
