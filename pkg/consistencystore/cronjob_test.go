// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

var (
	jobs     = batchv1.Resource("jobs")
	cronJobs = batchv1.Resource("cronjobs")
)

// cronJobRun is the real controller with a CronJob cache that nothing comes to any more.
type cronJobRun struct {
	client *fake.Clientset
	store  *Store

	mu      sync.Mutex
	created []time.Duration // since the first minute
	last    string          // of them
	deleted sets.Set[string]
	lists   int
	refuse  bool          // lists
	hang    time.Duration // how long a list takes
	fail    time.Duration // after how long a creation of a Job fails, unless 0
	tries   int           // of them
	unseen  bool          // what is written is never seen
}

// nthCronJob runs at every fifth minute.
func nthCronJob(i int) *batchv1.CronJob {
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("cron-%d", i), UID: types.UID(fmt.Sprintf("cron-%d", i)), Generation: 1,
		CreationTimestamp: metav1.Now()}, Spec: batchv1.CronJobSpec{Schedule: "*/5 * * * *", ConcurrencyPolicy: batchv1.AllowConcurrent}}
}

// startCronJobs starts the controller; p says what is proven, nil that it is stock.
func startCronJobs(t *testing.T, p Prover, objects ...runtime.Object) *cronJobRun {
	r := &cronJobRun{client: fake.NewClientset(objects...), deleted: sets.New[string]()}
	ctx, cancel := context.WithCancel(t.Context())
	first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
	consistency.SetProvider(func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		require.Equal(t, cronJob, controller)
		if p == nil {
			return consistency.NewNoopConsistencyStore()
		}
		tracker := rvtracker.New(rvtracker.Options{})
		go tracker.Run(ctx)
		r.store = newStore(tracker, controller, stores)
		r.store.ctx, r.store.prover, r.store.brief = ctx, &answers{Prover: p}, true
		r.store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		return r.store
	})
	r.client.PrependWatchReactor("cronjobs", func(k8stesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	r.client.PrependReactor("list", "cronjobs", func(k8stesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lists++
		if r.refuse {
			return true, nil, errors.New("no server")
		}
		return false, nil, nil
	})
	r.client.PrependReactor("create", "jobs", func(action k8stesting.Action) (bool, runtime.Object, error) {
		job := action.(k8stesting.CreateAction).GetObject().(*batchv1.Job)
		job.UID = types.UID(job.Name)
		r.mu.Lock()
		defer r.mu.Unlock()
		// This client records no writes, so a reconcile of the same instant may come before the cache has the Job, and find it there.
		if n, at := len(r.created), time.Since(first); n == 0 || r.created[n-1] != at || r.last != job.Name {
			r.created, r.last = append(r.created, at), job.Name
		}
		if r.unseen {
			owner := metav1.GetControllerOf(job)
			r.store.WroteAt(types.NamespacedName{Namespace: "ns", Name: owner.Name}, owner.UID, jobs, "999999")
		}
		return false, nil, nil
	})
	r.client.PrependReactor("delete", "jobs", func(action k8stesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deleted.Insert(action.(k8stesting.DeleteAction).GetName())
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(r.client, 0)
	controller, err := cronjob.NewControllerV2(ctx, factory.Batch().V1().Jobs(), factory.Batch().V1().CronJobs(), hanging{r.client, r})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	r.mu.Lock()
	r.lists = 0
	r.mu.Unlock()
	runUntilCleanup(t, cancel, factory, func() { controller.Run(ctx, 5) })
	return r
}

// hanging is a client whose lists of CronJobs may take long, and whose creations of Jobs may fail after a time.
type hanging struct {
	*fake.Clientset
	run *cronJobRun
}

func (h hanging) BatchV1() batchv1client.BatchV1Interface {
	return hangingBatch{h.Clientset.BatchV1(), h.run}
}

type hangingBatch struct {
	batchv1client.BatchV1Interface
	run *cronJobRun
}

func (h hangingBatch) CronJobs(namespace string) batchv1client.CronJobInterface {
	return hangingCronJobs{h.BatchV1Interface.CronJobs(namespace), h.run}
}

func (h hangingBatch) Jobs(namespace string) batchv1client.JobInterface {
	return failingJobs{h.BatchV1Interface.Jobs(namespace), h.run}
}

type failingJobs struct {
	batchv1client.JobInterface
	run *cronJobRun
}

func (f failingJobs) Create(ctx context.Context, job *batchv1.Job, opts metav1.CreateOptions) (*batchv1.Job, error) {
	f.run.mu.Lock()
	after := f.run.fail
	f.run.tries++
	f.run.mu.Unlock()
	if after == 0 {
		return f.JobInterface.Create(ctx, job, opts)
	}
	time.Sleep(after)
	if f.run.store != nil {
		f.run.store.Failed(types.NamespacedName{Namespace: "ns", Name: metav1.GetControllerOf(job).Name}, transport.Write{Method: http.MethodPost, Resource: jobs})
	}
	return nil, errors.New("no Jobs")
}

type hangingCronJobs struct {
	batchv1client.CronJobInterface
	run *cronJobRun
}

func (h hangingCronJobs) List(ctx context.Context, opts metav1.ListOptions) (*batchv1.CronJobList, error) {
	h.run.mu.Lock()
	hang := h.run.hang
	h.run.mu.Unlock()
	if hang > 0 { // No timer that is due at once, see slowServer in package wiring.
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(hang):
		}
	}
	return h.CronJobInterface.List(ctx, opts)
}

// runUntilCleanup runs a controller, and ends it and its informers with the test. Then no store is provided any more.
func runUntilCleanup(t *testing.T, cancel context.CancelFunc, factory informers.SharedInformerFactory, run func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
		time.Sleep(2 * time.Second) // Who waits for a proof is let go by then.
		consistency.SetProvider(nil)
	})
}

// change changes a CronJob on the server; the cache does not see it.
func (r *cronJobRun) change(t *testing.T, name string, change func(*batchv1.CronJob)) {
	all := r.client.BatchV1().CronJobs("ns")
	c, err := all.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	change(c)
	_, err = all.Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// When a CronJob runs that was suspended, or was not, by what is proven and can be read.
func TestCronJobRunsByWhatTheServerHas(t *testing.T) {
	suspend := func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) }
	for name, test := range map[string]struct {
		proof    freshness.Proof
		stock    bool
		changed  func(*batchv1.CronJob)
		gone     bool
		refuse   bool
		hang     time.Duration
		late     time.Duration // how long after the CronJob is due the controller starts
		schedule string
		deadline int64
		want     []float64
	}{
		"stock, suspended unseen":             {stock: true, changed: suspend, want: []float64{0.1}},
		"proven":                              {proof: fresh, want: []float64{0.1}},
		"stale, suspended":                    {proof: stale, changed: suspend},
		"stale, deleted":                      {proof: stale, gone: true},
		"stale, another CronJob was changed":  {proof: stale, want: []float64{2.1}},
		"stale, no read":                      {proof: stale, refuse: true, want: []float64{30.1}},
		"unknown, no read":                    {proof: down, refuse: true, want: []float64{30.1}},
		"no read, short deadline":             {proof: stale, refuse: true, deadline: 10, want: []float64{9.1}},
		"no read, long deadline":              {proof: stale, refuse: true, deadline: 100, want: []float64{90.1}},
		"no read, deadline above the period":  {proof: stale, refuse: true, deadline: 600, want: []float64{150.1}},
		"no read, each minute once":           {proof: stale, refuse: true, deadline: 600, schedule: "* * * * *", want: []float64{-210, -150, -90, -30, 30, 90, 150}},
		"reads hang, short deadline":          {proof: stale, hang: time.Hour, deadline: 10, want: []float64{9.1}},
		"reads hang, shortest deadline":       {proof: down, hang: time.Hour, deadline: 1, want: []float64{0.9}},
		"no read, late":                       {proof: stale, refuse: true, deadline: 10, late: 6 * time.Second, want: []float64{9.6 - 300, 9.1}},
		"a read takes long":                   {proof: stale, hang: 4 * time.Second, want: []float64{6.1}},
		"nothing can ever be proven, no read": {proof: absent, refuse: true, want: []float64{6.1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				object := nthCronJob(0)
				if test.deadline > 0 {
					object.Spec.StartingDeadlineSeconds = &test.deadline
				}
				if test.schedule != "" {
					object.Spec.Schedule = test.schedule
				}
				var p Prover
				if !test.stock {
					p = &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: test.proof, jobs: fresh}}
				}
				if test.late > 0 {
					time.Sleep(5*time.Minute + test.late)
				}
				r := startCronJobs(t, p, object)
				if test.changed != nil {
					r.change(t, object.Name, test.changed)
				}
				if test.gone {
					require.NoError(t, r.client.BatchV1().CronJobs("ns").Delete(t.Context(), object.Name, metav1.DeleteOptions{}))
				}
				r.mu.Lock()
				r.refuse, r.hang = test.refuse, test.hang
				r.mu.Unlock()
				time.Sleep(5*time.Minute + 3*time.Minute - test.late)
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				require.Len(t, r.created, len(test.want), "%v", r.created)
				for i, want := range test.want {
					require.InDelta(t, want, r.created[i].Seconds(), 1)
				}
			})
		})
	}
}

// A CronJob does not wait until others have been read, which have more time and are as many as there are workers.
func TestACronJobDoesNotWaitForTheReadsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = int64(14)
		short := nthCronJob(0)
		short.Spec.StartingDeadlineSeconds = new(deadline)
		objects := []runtime.Object{short}
		for i := range 30 {
			objects = append(objects, nthCronJob(i+1))
		}
		r := startCronJobs(t, &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: stale}}, objects...)
		r.mu.Lock()
		r.hang = time.Hour
		r.mu.Unlock()
		time.Sleep(5*time.Minute + 20*time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.created, 1)
		require.InDelta(t, 0.9*float64(deadline), r.created[0].Seconds(), 0.5)
	})
}

// A CronJob that is synced by what was read of the server, and fails, is tried no more often than on stock: that the time is over meanwhile after which it would
// have been synced unread does not have it looked at besides its queue's backoff.
func TestACronJobThatFailsSlowlyIsLeftToItsBackoff(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // One of them waits since the last error of the process, by a clock that is not the bubble's.
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	tries := func(p Prover) (tries int) {
		synctest.Test(t, func(t *testing.T) {
			object := nthCronJob(0)
			object.Spec.Schedule = "5 * * * *"
			r := startCronJobs(t, p, object)
			r.mu.Lock()
			r.fail = 29 * time.Second // of 30 s
			r.mu.Unlock()
			time.Sleep(time.Hour)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			tries = r.tries
		})
		return tries
	}
	stock, ours := tries(nil), tries(&verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: stale}})
	require.Greater(t, stock, 10)
	require.LessOrEqual(t, ours, stock)
}

// One list of the server serves all CronJobs that wait, and all run soon.
func TestManyCronJobsAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range 200 {
			objects = append(objects, nthCronJob(i))
		}
		r := startCronJobs(t, &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: stale}}, objects...)
		time.Sleep(5*time.Minute + 5*time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.created, 200)
		require.LessOrEqual(t, r.created[199], 3*time.Second)
		require.LessOrEqual(t, r.lists, 3)
	})
}

// A CronJob whose own Job its cache never shows runs in the next minute all the same, by what the server has.
func TestCronJobWhoseOwnWritesAreNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := nthCronJob(0)
		object.Spec.Schedule = "*/2 * * * *"
		r := startCronJobs(t, &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: fresh}}, object)
		r.mu.Lock()
		r.unseen = true
		r.mu.Unlock()
		time.Sleep(4*time.Minute + 10*time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.created, 2, "%v", r.created)
		require.InDelta(t, -180, r.created[0].Seconds(), 1)
		require.InDelta(t, -58, r.created[1].Seconds(), 1)
	})
}

// Finished Jobs are deleted only by a limit that is proven.
func TestFinishedJobsAreDeletedByAProvenLimit(t *testing.T) {
	for name, test := range map[string]struct {
		prover Prover
		want   int
	}{
		"stock":  {want: 2},
		"proven": {prover: &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: fresh}}, want: 2},
		"stale":  {prover: &verdicts{of: map[schema.GroupResource]freshness.Proof{cronJobs: stale}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				object := nthCronJob(0)
				object.Spec.SuccessfulJobsHistoryLimit = new(int32(1))
				objects := []runtime.Object{object}
				for i := range 3 {
					objects = append(objects, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("finished-%d", i), UID: types.UID(fmt.Sprint(i)),
						OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(object, batchv1.SchemeGroupVersion.WithKind("CronJob"))}},
						Status: batchv1.JobStatus{StartTime: new(metav1.Now()), Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}}})
				}
				r := startCronJobs(t, test.prover, objects...)
				time.Sleep(time.Minute)
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				require.Len(t, r.deleted, test.want, "%v", r.deleted)
			})
		})
	}
}
