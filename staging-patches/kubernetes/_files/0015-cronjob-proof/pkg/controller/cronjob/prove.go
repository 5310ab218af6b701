// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"cmp"
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

var cronJobGroupResource = batchv1.Resource("cronjobs")

const (
	// patience is how long a CronJob waits for its caches before it is read from the server, and how old what was read for another one may be.
	patience = 2 * time.Second
	// longestWait is how long a CronJob waits in all if it has no startingDeadlineSeconds.
	longestWait = 30 * time.Second
)

func newConsistencyStore(jobs batchv1informers.JobInformer, cronJobs batchv1informers.CronJobInformer) consistencyutil.ConsistencyStore {
	return consistencyutil.NewIfProvided("cronjob", map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		batchv1.Resource("jobs"): jobs.Informer().GetStore(),
		cronJobGroupResource:     cronJobs.Informer().GetStore(),
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
	since, synced := jm.waits.since(key, now)
	cronJob, until := jm.cached(key, since, synced)
	if wait := min(patience, until.Sub(since)/2) - now.Sub(since); wait > 0 {
		if since.Equal(now) {
			time.AfterFunc(wait, func() { jm.back(key, since) })
			time.AfterFunc(until.Sub(now), func() { jm.back(key, since) })
		}
		return nil, err
	}
	logger := klog.FromContext(ctx)
	read, readErr := jm.waits.read(since, now)
	switch {
	case readErr == nil:
		cronJob = read[key]
		logger.V(2).Info("Read a CronJob from the server, as its cache is not proven fresh", "cronjob", key, "reason", err)
	case now.Before(until):
		jm.ask(ctx, key, since)
		return nil, err
	default:
		logger.Info("A CronJob has waited for as long as it may, and is synced though its cache is not proven fresh", "cronjob", key, "since", since, "reason", err, "read", readErr)
	}
	jm.waits.end(key, now, false, false) // A second look that comes while it is synced would have it synced once more.
	requeueAfter, err = jm.sync(context.WithValue(ctx, insteadKey{}, instead{cronJob}), key)
	jm.synced(key, err)
	return requeueAfter, err
}

// back puts a CronJob back on the queue if it still waits. To have the queue add it after a time would have one that does not wait any more
// tried again before its backoff after a failure is over.
func (jm *ControllerV2) back(key string, since time.Time) {
	if began, waits := jm.waits.waiting(key); waits && began.Equal(since) {
		jm.queue.Add(key)
	}
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

func (r realJobControl) requests() context.Context { return cmp.Or(r.ctx, context.TODO()) }

// cached is the cache's CronJob and until when it may wait that waits since then: for nine tenths of what is left of its startingDeadlineSeconds, and no longer
// than half of the time to the next run. Nothing is missed by one that was synced since its last run was due, so the cache must not have it run again.
func (jm *ControllerV2) cached(key string, since, synced time.Time) (*batchv1.CronJob, time.Time) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	cronJob, err := jm.cronJobLister.CronJobs(namespace).Get(name)
	if err != nil {
		return nil, since.Add(longestWait)
	}
	schedule, err := parsers.ParseCronScheduleWithPanicRecovery(formatSchedule(cronJob, nil))
	if err != nil {
		return cronJob, since.Add(longestWait)
	}
	if due := schedule.Next(synced); due.After(since) {
		since = due
	}
	limit := longestWait
	if deadline := cronJob.Spec.StartingDeadlineSeconds; deadline != nil {
		limit = time.Duration(*deadline) * time.Second
		if _, due, _, _ := mostRecentScheduleTime(cronJob, since, schedule, true); due != nil {
			limit -= since.Sub(*due)
		}
		limit = min(limit*9/10, limit-200*time.Millisecond) // A look that waits for a proof in vain takes 100 ms.
	}
	return cronJob, since.Add(min(limit, schedule.Next(since).Sub(since)/2))
}

// listCronJobs are all CronJobs of the server: where one waits many do, and one list serves them all.
func (jm *ControllerV2) listCronJobs(ctx context.Context) (map[string]*batchv1.CronJob, error) {
	out := map[string]*batchv1.CronJob{}
	err := consistencyutil.ReadLive(ctx, jm.consistencyStore, cronJobGroupResource, func(ctx context.Context) error {
		return pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return jm.kubeClient.BatchV1().CronJobs(metav1.NamespaceAll).List(ctx, options)
		}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			cronJob := item.(*batchv1.CronJob)
			out[cache.MetaObjectToName(cronJob).String()] = cronJob
			return nil
		})
	})
	return out, err
}

// waits are the CronJobs that wait, and what was read last from the server for them. Its methods may be called concurrently.
type waits struct {
	mu sync.Mutex
	// began is when a wait began, synced when a CronJob was synced last, asks when the wait began of those for which it is read.
	began, synced, asks map[string]time.Time
	// from and to are when the last read began and ended.
	from, to time.Time
	last     map[string]*batchv1.CronJob
	err      error
}

// since is when the wait of the CronJob with this key began, which begins now if there is none, and when it was synced last, zero if it was not.
func (w *waits) since(key string, now time.Time) (began, synced time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.began[key]; !waits {
		w.began[key] = now
	}
	return w.began[key], w.synced[key]
}

// waiting is since when the CronJob with this key waits, if it does.
func (w *waits) waiting(key string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	began, ok := w.began[key]
	return began, ok
}

// end ends the wait of the CronJob with this key, which is synced now or is gone, and forgets after the last one what was read.
func (w *waits) end(key string, now time.Time, synced, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.began, key)
	switch {
	case gone:
		delete(w.synced, key)
	case synced:
		w.synced[key] = now
	}
	if len(w.began) == 0 {
		w.last = nil
	}
}

// read is what was read after the wait since then began, and was there no longer than patience ago. The error says why there is none.
func (w *waits) read(since, now time.Time) (map[string]*batchv1.CronJob, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil || now.Sub(w.to) > patience || w.from.Before(since) {
		return nil, cmp.Or(w.err, fmt.Errorf("not read yet"))
	}
	return w.last, nil
}

// ask has the CronJobs read, unless they are being read, or could not be just now, and this one looked at after that. No worker waits for it: other
// CronJobs could miss their deadlines.
func (jm *ControllerV2) ask(ctx context.Context, key string, since time.Time) {
	w := jm.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := len(w.asks) > 0
	w.asks[key] = since
	if asked {
		return
	}
	go func() {
		from, pause := jm.now(), time.Duration(0)
		last, err := jm.listCronJobs(ctx)
		if err != nil {
			last, pause = nil, patience
		}
		time.AfterFunc(pause, func() {
			w.mu.Lock()
			asks := w.asks
			w.asks, w.from, w.to, w.last, w.err = map[string]time.Time{}, from, jm.now(), last, err
			w.mu.Unlock()
			w.end("", from, false, false) // Perhaps nobody waits any more.
			for key, since := range asks {
				jm.back(key, since)
			}
		})
	}()
}
