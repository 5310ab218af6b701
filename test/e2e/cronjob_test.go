// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	cronJobsOfEach = 3
	// ruleSuspended is broken by a Job of a CronJob that was suspended before its minute.
	ruleSuspended = "a suspended CronJob has run"
	// ruleTwice is broken by a second Job of a CronJob for one minute.
	ruleTwice = "a CronJob has run twice for one minute"
)

var cronJobOptions = rig.Options{Record: []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.Jobs, truth.CronJobs}}

// CronJobs are suspended while their events are held, just before the minute. Every stock arm runs them. Others, of which nothing was
// changed, must run meanwhile, and those that were suspended once they are not any more.
var _ = describe(scenario{
	number: 36, title: "cronjob events held: CronJobs suspended before their minute", label: ordinary,
	hurts: rig.U1, rules: []string{ruleSuspended}, mutants: []without{{"proof-cronjob", ruleSuspended}}, gaps: []int{16}, idle: true,
	options: cronJobOptions,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		minute := r.makeCronJobs(ctx, nil, "suspended", "others")
		hold := r.inject(faultproxy.Target{Resource: truth.CronJobs}, faultproxy.Hold{})
		r.suspend(ctx, "suspended", true)
		r.figure("V suspended before the minute", "%v", rounded(time.Until(minute)))
		if !time.Now().Before(minute) {
			r.unproven = append(r.unproven, "the CronJobs were suspended too late")
		}
		r.figure("others have run after", "%v", rounded(r.ran(ctx, "others", minute, minute)))
		r.passes(ctx, "the controller to go wrong later", minute, 15*time.Second)
		r.proves(hold, cronJobsOfEach, time.Since(minute))
		r.putOff(ctx, "cronjob", truth.CronJobs)
		wrong := r.runsOf("suspended", minute)
		r.figure("suspended ones that have run", "%d of %d", len(wrong), cronJobsOfEach)
		for name, n := range wrong {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleSuspended, Object: name, Time: time.Now(), Detail: fmt.Sprintf("%d times", n)})
		}
		hold.Clear()
		r.told(ctx, truth.CronJobs)
		r.suspend(ctx, "suspended", false)
		r.figure("run after they are resumed", "%v", rounded(r.ran(ctx, "suspended", time.Now(), minute, minute.Add(time.Minute))))
	},
})

// The Job of a minute completes, and is deleted at once, as none is kept, while cronjob events are held: nothing but the CronJob's status,
// which its controller has written, says that it has run. Every stock arm runs it again and again.
var _ = describe(scenario{
	number: 36, title: "cronjob events held: finished Jobs are not kept", label: ordinary,
	incidents: []string{"62772"},
	hurts:     rig.U1, rules: []string{ruleTwice}, mutants: []without{{"own-writes", ruleTwice}}, gaps: []int{16}, idle: true,
	options: cronJobOptions,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		minute := r.makeCronJobs(ctx, func(c *batchv1.CronJob) { c.Spec.SuccessfulJobsHistoryLimit = new(int32) }, "unkept")
		hold := r.inject(faultproxy.Target{Resource: truth.CronJobs}, faultproxy.Hold{})
		r.figure("run after", "%v", rounded(r.ran(ctx, "unkept", minute, minute)))
		r.passes(ctx, "the controller to go wrong later", minute, 15*time.Second)
		r.proves(hold, cronJobsOfEach, time.Since(minute))
		for name, n := range r.runsOf("unkept", minute) {
			r.figure(name+" has run", "%d", n)
			if n > 1 {
				r.violate(oracle.Violation{Oracle: "S2", Rule: ruleTwice, Object: name, Time: time.Now(), Detail: fmt.Sprintf("%d times", n)})
			}
		}
		hold.Clear()
		r.told(ctx, truth.CronJobs)
		next := minute.Add(time.Minute)
		r.eventually(ctx, "the next minute", func() (bool, error) { return !time.Now().Before(next), nil })
		r.figure("run in the next minute after", "%v", rounded(r.ran(ctx, "unkept", next, next)))
	},
})

// makeCronJobs makes some CronJobs of each group, and returns the next minute, which is 10 to 20 s away: an informer whose watch is held
// relists after 30 s at the earliest, and then P's cache is not stale any more when the minute comes. The KCM has been told of
// them then.
func (r *run) makeCronJobs(ctx context.Context, change func(*batchv1.CronJob), groups ...string) (minute time.Time) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the end of a minute", func() (bool, error) { s := time.Now().Second(); return s >= 40 && s < 50, nil })
	minute = time.Now().Truncate(time.Minute).Add(time.Minute)
	for _, group := range groups {
		for i := range cronJobsOfEach {
			cronJob := workload.CronJob(nameOf(group, i))
			if change != nil {
				change(cronJob)
			}
			_, err := r.Client.BatchV1().CronJobs(cronJob.Namespace).Create(ctx, cronJob, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
	r.eventually(ctx, "the truth to have the CronJobs", func() (bool, error) {
		return len(r.Truth.At(truth.CronJobs, truth.Latest)) == len(groups)*cronJobsOfEach, nil
	})
	r.told(ctx, truth.CronJobs)
	return minute
}

func (r *run) suspend(ctx context.Context, group string, suspend bool) {
	ginkgo.GinkgoHelper()
	for i := range cronJobsOfEach {
		_, err := r.Client.BatchV1().CronJobs(metav1.NamespaceDefault).Patch(ctx, nameOf(group, i), types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// runsOf is how often each CronJob of the group has run for these minutes, if it has.
func (r *run) runsOf(group string, minutes ...time.Time) map[string]int {
	out := map[string]int{}
	for i := range cronJobsOfEach {
		name := nameOf(group, i)
		for _, e := range r.Truth.Events(truth.Jobs) {
			if e.Type == watch.Added && slices.ContainsFunc(minutes, func(minute time.Time) bool { return e.Name == fmt.Sprintf("%s-%d", name, minute.Unix()/60) }) {
				out[name]++
			}
		}
	}
	return out
}

// ran waits until each CronJob of the group has run for one of these minutes, and returns how long after since that was.
func (r *run) ran(ctx context.Context, group string, since time.Time, minutes ...time.Time) time.Duration {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "each of "+group+" to have run", func() (bool, error) { return len(r.runsOf(group, minutes...)) == cronJobsOfEach, nil })
	return time.Since(since)
}
