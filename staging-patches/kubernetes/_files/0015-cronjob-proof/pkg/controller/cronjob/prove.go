// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	batchv1informers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/util/parsers"
)

var (
	jobGroupResource     = batchv1.Resource("jobs")
	cronJobGroupResource = batchv1.Resource("cronjobs")
)

const (
	// patience is how long a CronJob waits for its caches before it is read from the server, and how old what was read
	// for another one may be.
	patience = 2 * time.Second
	// longestWait is how long a CronJob waits in all if it has no startingDeadlineSeconds.
	longestWait = 30 * time.Second
)

func newConsistencyStore(jobs batchv1informers.JobInformer, cronJobs batchv1informers.CronJobInformer) consistencyutil.ConsistencyStore {
	return consistencyutil.NewIfProvided("cronjob", map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		jobGroupResource:     jobs.Informer().GetStore(),
		cronJobGroupResource: cronJobs.Informer().GetStore(),
	})
}

// syncFresh is sync on caches that have all that the controller has written and, where a Job is to be run or deleted, a CronJob
// that is proven fresh. A CronJob that waits for that for longer than patience is read from the server, and synced as it is
// there. If it cannot be read either, it is synced after its longest wait as the cache has it: a run that never comes is harm, too.
func (jm *ControllerV2) syncFresh(ctx context.Context, key string) (*time.Duration, error) {
	var requeueAfter *time.Duration
	err := consistencyutil.Sync(ctx, key, func(ctx context.Context, key string) (err error) {
		requeueAfter, err = jm.sync(ctx, key)
		return err
	})
	if !consistencyutil.Parked(err) {
		jm.synced(key, err)
		return requeueAfter, err
	}
	jm.lost.wait(key)
	now := jm.now()
	since := jm.waits.since(key, now)
	if wait := patience - now.Sub(since); wait > 0 {
		if since.Equal(now) { // A second look at the same moment would come while it is read from the server, and have it synced once more.
			jm.lookAgain(key, since, wait)
		}
		return nil, err
	}
	logger := klog.FromContext(ctx)
	read, readErr := jm.waits.read(now.Add(-patience), jm.now, func() (map[string]*batchv1.CronJob, error) { return jm.listCronJobs(ctx) })
	cronJob := read[key]
	if readErr != nil {
		var until time.Time
		if cronJob, until = jm.cached(key, since); now.Before(until) {
			jm.lookAgain(key, since, min(patience, until.Sub(now)))
			return nil, err
		}
		logger.Info("A CronJob has waited for as long as it may, and is synced though its cache is not proven fresh", "cronjob", key, "since", since, "reason", err, "read", readErr)
	} else {
		logger.V(2).Info("Read a CronJob from the server, as its cache is not proven fresh", "cronjob", key, "reason", err)
	}
	requeueAfter, err = jm.sync(context.WithValue(ctx, insteadKey{}, instead{cronJob}), key)
	jm.synced(key, err)
	return requeueAfter, err
}

// lookAgain puts a CronJob back on the queue after a time if it still waits. To have the queue add it later would have one that does not
// wait any more tried again before its backoff after a failure is over.
func (jm *ControllerV2) lookAgain(key string, since time.Time, wait time.Duration) {
	time.AfterFunc(wait, func() {
		if began, waits := jm.waits.waiting(key); waits && began.Equal(since) {
			jm.queue.Add(key)
		}
	})
}

// synced notes that the CronJob with this key waits no more.
func (jm *ControllerV2) synced(key string, err error) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	_, gone := jm.cronJobLister.CronJobs(namespace).Get(name)
	if gone != nil {
		jm.lost.forget(key)
	}
	jm.waits.end(key, jm.now(), err == nil, gone != nil)
}

type insteadKey struct{}

// instead is the CronJob to sync in place of the cache's, nil if there is none.
type instead struct{ cronJob *batchv1.CronJob }

// readCronJob is the CronJob to sync: the cache's, if that has all that was written for it.
func (jm *ControllerV2) readCronJob(ctx context.Context, namespace, name string) (*batchv1.CronJob, error) {
	owner := types.NamespacedName{Namespace: namespace, Name: name}
	if i, ok := ctx.Value(insteadKey{}).(instead); ok {
		if i.cronJob == nil {
			return nil, errors.NewNotFound(cronJobGroupResource, name)
		}
		return i.cronJob, nil
	}
	if err := jm.consistencyStore.EnsureReady(owner); err != nil {
		return nil, err
	}
	cronJob, err := jm.cronJobLister.CronJobs(namespace).Get(name)
	if errors.IsNotFound(err) {
		jm.consistencyStore.Clear(owner, "")
	}
	return cronJob, err
}

// prove returns nil if the CronJob is that of the server. Of Jobs no proof is needed: a CronJob's active ones are in its status, and
// are taken out only once they have finished, which is final, or the server says that they are gone.
func (jm *ControllerV2) prove(ctx context.Context) error {
	if _, ok := ctx.Value(insteadKey{}).(instead); ok {
		return nil
	}
	return consistencyutil.ProveFresh(ctx, jm.consistencyStore, cronJobGroupResource)
}

// forOwner has requests made for the CronJob, so that a client can record its writes.
func (jm *ControllerV2) forOwner(ctx context.Context, cronJob *batchv1.CronJob) (context.Context, *ControllerV2) {
	ctx = consistencyutil.WithOwnerRead(ctx, jm.consistencyStore, cronJob, controllerKind)
	own := *jm
	if control, ok := jm.jobControl.(realJobControl); ok {
		control.ctx = consistencyutil.OwnerContext(ctx)
		own.jobControl = noting{control, cache.MetaObjectToName(cronJob).String(), jm.lost}
	}
	return ctx, &own
}

func (r realJobControl) requests() context.Context {
	if r.ctx == nil {
		return context.TODO()
	}
	return r.ctx
}

// cached is the cache's CronJob and until when it may wait that waits since then: for nine tenths of its
// startingDeadlineSeconds, and no longer than half of the time to the next run. Nothing is missed by one that was synced since
// its last run was due, so the cache must not have it run again.
func (jm *ControllerV2) cached(key string, since time.Time) (*batchv1.CronJob, time.Time) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	cronJob, err := jm.cronJobLister.CronJobs(namespace).Get(name)
	if err != nil {
		return nil, since.Add(longestWait)
	}
	limit := longestWait
	if deadline := cronJob.Spec.StartingDeadlineSeconds; deadline != nil {
		limit = time.Duration(*deadline) * time.Second * 9 / 10
	}
	if schedule, err := parsers.ParseCronScheduleWithPanicRecovery(formatSchedule(cronJob, nil)); err == nil {
		if due := schedule.Next(jm.waits.lastSynced(key)); due.After(since) {
			since = due
		}
		limit = min(limit, schedule.Next(since).Sub(since)/2)
	}
	return cronJob, since.Add(limit)
}

// listCronJobs are all CronJobs of the server: where one waits many do, and one list serves them all.
func (jm *ControllerV2) listCronJobs(ctx context.Context) (map[string]*batchv1.CronJob, error) {
	out := map[string]*batchv1.CronJob{}
	err := consistencyutil.ReadLive(ctx, jm.consistencyStore, cronJobGroupResource, func(ctx context.Context) error {
		return pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return jm.kubeClient.BatchV1().CronJobs(metav1.NamespaceAll).List(ctx, options)
		}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			cronJob, ok := item.(*batchv1.CronJob)
			if !ok {
				return fmt.Errorf("unexpected object: %T", item)
			}
			out[cache.MetaObjectToName(cronJob).String()] = cronJob
			return nil
		})
	})
	return out, err
}

func newWaits() *waits {
	return &waits{began: map[string]time.Time{}, synced: map[string]time.Time{}, reading: make(chan struct{}, 1)}
}

// waits are the CronJobs that wait, and what was read last from the server for them. Its methods may be called concurrently.
type waits struct {
	mu sync.Mutex
	// began is when a wait began, synced when a CronJob was synced last.
	began, synced map[string]time.Time

	// reading has an element while somebody reads, or looks at what was read.
	reading chan struct{}
	// at is when the last read began, or when it failed.
	at   time.Time
	last map[string]*batchv1.CronJob
	err  error
}

// since is when the wait of the CronJob with this key began; it begins now if there is none.
func (w *waits) since(key string, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.began[key]; !waits {
		w.began[key] = now
	}
	return w.began[key]
}

// waiting is since when the CronJob with this key waits, if it does.
func (w *waits) waiting(key string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	began, ok := w.began[key]
	return began, ok
}

// lastSynced is when the CronJob with this key was synced last, zero if it was not.
func (w *waits) lastSynced(key string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced[key]
}

// end ends the wait of the CronJob with this key, which is synced now or is gone, and forgets after the last one what was read.
func (w *waits) end(key string, now time.Time, synced, gone bool) {
	w.mu.Lock()
	_, waited := w.began[key]
	delete(w.began, key)
	switch {
	case gone:
		delete(w.synced, key)
	case synced:
		w.synced[key] = now
	}
	none := len(w.began) == 0
	w.mu.Unlock()
	if !waited || !none {
		return
	}
	select {
	case w.reading <- struct{}{}:
		w.last = nil
		<-w.reading
	default: // Somebody has begun to wait, and reads.
	}
}

// read is what was read at asOf or later. Who comes while it is read waits for it, and a read that fails is not made again at once.
func (w *waits) read(asOf time.Time, now func() time.Time, list func() (map[string]*batchv1.CronJob, error)) (map[string]*batchv1.CronJob, error) {
	w.reading <- struct{}{}
	defer func() { <-w.reading }()
	if !w.at.Before(asOf) && (w.last != nil || w.err != nil) {
		return w.last, w.err
	}
	began := now()
	if w.last, w.err = list(); w.err != nil {
		w.last, w.at = nil, now()
		return nil, w.err
	}
	w.at = began
	return w.last, nil
}
