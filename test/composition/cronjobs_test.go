// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// cronJobSeeds are those that run unless CRONJOB_SEEDS says how many.
const cronJobSeeds = 5

// A CronJob that is suspended while its cache is held runs on stock, and one that replaces its Jobs deletes the one that runs: its run of the first
// minute was made shortly before the second.
func TestCronJobIsSuspendedUnseen(t *testing.T) {
	for _, policy := range []string{"Forbid", "Replace"} {
		t.Run(policy, func(t *testing.T) {
			steps := []schedule.Step{
				{At: 109 * time.Second, Action: schedule.Hold, Target: "cronjobs", For: 41 * time.Second},
				{At: 110 * time.Second, Action: schedule.Suspend, Target: "cronjob", For: 132 * time.Second},
			}
			if policy == "Replace" {
				steps = append([]schedule.Step{{At: 50 * time.Second, Action: schedule.Suspend, Target: "cronjob", For: 58 * time.Second}}, steps...)
			}
			s := schedule.Schedule{Nodes: 2, Settle: 3 * time.Minute, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: policy, Keep: 10}}, Steps: steps}
			owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "cronjob"}}
			stock, ours := both(t, s)
			require.NotEmpty(t, stock.Unjustified)
			require.Equal(t, "run", stock.Unjustified[0].Rule)
			require.Equal(t, policy == "Replace", stock.Requests[owner]["delete jobs"] > 0)
			require.Empty(t, ours.Unjustified)
			require.Zero(t, ours.Requests[owner]["delete jobs"])
			require.GreaterOrEqual(t, len(ours.Runs[owner]), 4)
			require.Len(t, ours.Runs, 1)
		})
	}
}

// A CronJob whose Jobs are refused, or whose webhook is down, is tried as often as upstream tries it, with exponential backoff, also if
// it has to wait for each proof.
func TestCronJobCannotRunForLong(t *testing.T) {
	const outage = 5 * time.Minute
	slow := schedule.Step{At: 110 * time.Second, Action: schedule.SlowReads, Target: "cronjobs", Delay: time.Second, For: outage}
	for name, steps := range map[string][]schedule.Step{
		"refuse":               {{Action: schedule.Refuse}},
		"webhook":              {{Action: schedule.Webhook}},
		"webhook, slow proofs": {{Action: schedule.Webhook}, slow},
	} {
		t.Run(name, func(t *testing.T) {
			steps[0].At, steps[0].Target, steps[0].For = 115*time.Second, "cronjob", outage
			s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: time.Minute, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: "Forbid"}}, Steps: steps}
			stock, ours := both(t, s)
			owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "cronjob"}}
			require.Greater(t, stock.Requests[owner]["create jobs"], 10)
			require.LessOrEqual(t, ours.Requests[owner]["create jobs"], stock.Requests[owner]["create jobs"]+2)
		})
	}
}

// So is one whose Jobs are made or not, and nobody knows, while nothing can be proven: it is synced by live reads then, and the end of its wait for a proof
// does not have it tried again besides.
func TestCronJobOfWhoseJobsNobodyKnows(t *testing.T) {
	const outage = 30 * time.Minute
	for name, fault := range map[string]schedule.Step{
		"nothing can be proven":      {Action: schedule.Unprovable},
		"CronJobs cannot be proven":  {Action: schedule.Broken, Target: "cronjobs", N: 1},
		"Jobs cannot be proven":      {Action: schedule.Broken, Target: "jobs", N: 1},
		"lists of CronJobs take 1 s": {Action: schedule.SlowReads, Target: "cronjobs", Delay: time.Second},
		"lists of CronJobs take 3 s": {Action: schedule.SlowReads, Target: "cronjobs", Delay: 3 * time.Second},
		"lists of CronJobs take 5 s": {Action: schedule.SlowReads, Target: "cronjobs", Delay: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			fault.At, fault.For = 115*time.Second, outage
			s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: time.Minute, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: "Forbid"}},
				Steps: []schedule.Step{{At: fault.At, Action: schedule.TimeOut, Target: "jobs", For: outage}, fault}}
			owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "cronjob"}}
			stock, ours := both(t, s)
			t.Logf("creations of Jobs: stock %d, ours %d", stock.Requests[owner]["create jobs"], ours.Requests[owner]["create jobs"])
			require.Greater(t, stock.Requests[owner]["create jobs"], 10)
			require.LessOrEqual(t, ours.Requests[owner]["create jobs"], stock.Requests[owner]["create jobs"]+2)
			require.GreaterOrEqual(t, len(ours.Runs[owner]), len(stock.Runs[owner]))
		})
	}
}

// While reads of CronJobs hang and writes are taken, a CronJob runs each time that it runs on stock.
func TestCronJobsRunWhileReadsHang(t *testing.T) {
	const outage = 5 * time.Minute
	for name, deadlines := range map[string][]int64{"1 s": {1}, "10 s": {10}, "30 s": {30}, "60 s": {60}, "none": {0}, "many": {10, 12, 15, 30, 60, 90, 600, 0}} {
		for _, hang := range []time.Duration{8 * time.Second, 20 * time.Second} {
			t.Run(fmt.Sprint(name, ", reads take ", hang), func(t *testing.T) {
				s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: time.Minute, Steps: []schedule.Step{
					{At: 110 * time.Second, Action: schedule.SlowReads, Target: "cronjobs", Delay: hang, For: outage}}}
				for _, deadline := range deadlines {
					s.CronJobs = append(s.CronJobs, schedule.CronJob{Name: fmt.Sprint("cronjob-", deadline), Policy: "Forbid", Deadline: deadline})
				}
				stock, ours := both(t, s)
				for _, c := range s.CronJobs {
					owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: c.Name}}
					t.Logf("%s runs: stock %d, ours %v", c.Name, len(stock.Runs[owner]), ours.Runs[owner])
					require.GreaterOrEqual(t, len(stock.Runs[owner]), 7)
					for due := range stock.Runs[owner] {
						assert.Contains(t, ours.Runs[owner], due, c.Name)
					}
				}
			})
		}
	}
}

// A CronJob whose Job was made though the answer was lost, shortly before its next minute, does not run beside it, and does not forget it: it is looked
// up, as upstream finds it by trying again at once. For the cache of Jobs shows it only after that minute, and all workers are busy until then.
func TestCronJobFindsTheJobWhoseAnswerWasLost(t *testing.T) {
	for _, policy := range []string{"Forbid", "Replace", "Allow"} {
		t.Run(policy, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Settle: 2 * time.Minute, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: policy, Keep: 1}}, Steps: []schedule.Step{
				{At: 50 * time.Second, Action: schedule.Suspend, Target: "cronjob", For: 68500 * time.Millisecond},
				{At: 100 * time.Second, Action: schedule.Hold, Target: "jobs", For: 50 * time.Second},
				{At: 118500 * time.Millisecond, Action: schedule.LostAnswer, Target: "jobs", For: 50 * time.Millisecond},
				{At: 118550 * time.Millisecond, Action: schedule.SlowWrites, Target: "jobs", Delay: 5 * time.Second, For: time.Second},
			}}
			for n := range 5 {
				name := fmt.Sprint("busy-", n)
				s.CronJobs = append(s.CronJobs, schedule.CronJob{Name: name, Policy: "Allow", Keep: 1})
				s.Steps = append(s.Steps, schedule.Step{At: 50 * time.Second, Action: schedule.Suspend, Target: name, For: 68600 * time.Millisecond})
			}
			stock, ours := both(t, s)
			owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "cronjob"}}
			require.NotEmpty(t, stock.Runs[owner])
			require.Equal(t, slices.Sorted(maps.Keys(stock.Runs[owner])), slices.Sorted(maps.Keys(ours.Runs[owner])), "minutes that are run")
			if policy == "Forbid" {
				const next = 2 * time.Minute
				require.Greater(t, stock.Runs[owner][next], next+30*time.Second, "the Job of the minute before has ended")
				require.Greater(t, ours.Runs[owner][next], next+30*time.Second, "the Job of the minute before has ended")
			}
			require.Equal(t, stock.Requests[owner]["delete jobs"], ours.Requests[owner]["delete jobs"])
			require.Empty(t, stock.Unjustified)
			require.Empty(t, ours.Unjustified)
		})
	}
}

// A Job that has finished unseen is one that runs by the cache: under Forbid it holds up the next run until the cache shows its end, and under Replace it
// is deleted. On stock, too.
func TestCronJobWhoseJobFinishedUnseen(t *testing.T) {
	const held, shown = 65 * time.Second, 150 * time.Second // The Job of the first minute ends between them.
	for policy, tc := range map[string]struct {
		least, most time.Duration // when the run of the second minute is made
		deleted     bool
	}{
		"Forbid":  {shown, shown + 10*time.Second, false},
		"Replace": {2 * time.Minute, 2*time.Minute + 10*time.Second, true},
	} {
		t.Run(policy, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Settle: time.Minute, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: policy, Keep: 10}},
				Steps: []schedule.Step{{At: held, Action: schedule.Hold, Target: "jobs", For: shown - held}}}
			owner := model.Owner{Kind: "CronJob", NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "cronjob"}}
			stock, ours := both(t, s)
			for arm, r := range map[arms.Arm]validate.Record{arms.Stock: stock, arms.Ours: ours} {
				require.Contains(t, r.Runs[owner], 2*time.Minute, arm)
				require.GreaterOrEqual(t, r.Runs[owner][2*time.Minute], tc.least, arm)
				require.Less(t, r.Runs[owner][2*time.Minute], tc.most, arm)
				require.Equal(t, tc.deleted, r.Requests[owner]["delete jobs"] > 0, arm)
			}
		})
	}
}

// Finished Jobs that are too many are deleted by their names: one that was made again unseen, and runs, goes in place of the one that had finished. On stock, too.
func TestFinishedJobsThatAreTooManyAreDeletedByName(t *testing.T) {
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		synctest.Test(t, func(t *testing.T) {
			server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 2, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: "Allow", Keep: 10}}})
			job := func(name string) (job *batchv1.Job) {
				server.Look(func(truth model.Truth) { job, _ = truth.Get(model.Jobs, traffic.Namespace, name).(*batchv1.Job) })
				return job
			}
			time.Sleep(4 * time.Minute)
			tr.Do(schedule.Step{Action: schedule.Suspend, Target: "cronjob", For: time.Hour})
			time.Sleep(2 * time.Minute)
			var finished []string
			server.Look(func(truth model.Truth) {
				for _, o := range truth.List(model.Jobs) {
					require.NotNil(t, o.(*batchv1.Job).Status.CompletionTime)
					finished = append(finished, o.GetName())
				}
			})
			slices.Sort(finished)
			require.GreaterOrEqual(t, len(finished), 3)
			oldest := finished[0]
			f.Do(schedule.Step{Action: schedule.Hold, Target: "jobs", For: 2 * time.Minute}, tr.After)
			server.Delete(model.Jobs, traffic.Namespace, oldest, nil)
			server.Create(model.Jobs, newIndexedJob(oldest, 1))
			require.NotNil(t, job(oldest), arm)
			tr.Do(schedule.Step{Action: schedule.SetKeep, Target: "cronjob", N: 1})
			time.Sleep(time.Minute)
			require.Nil(t, job(oldest), arm)
			require.NotNil(t, job(finished[len(finished)-1]), arm)
		})
	}
}

// Random histories of CronJobs: ours runs all that stock runs with reason, as soon, and nothing else.
func TestCronJobSeeds(t *testing.T) {
	eachSeed(t, number(t, "CRONJOB_SEEDS", cronJobSeeds), schedule.DrawCronJobs)
}
