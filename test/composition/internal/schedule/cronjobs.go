// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// What others do to the CronJob Target and its Jobs.
const (
	Suspend       Action = "suspend"        // it is suspended for For
	AddJob        Action = "add-job"        // a Job is made that it controls, under a name of its own
	TakeName      Action = "take-job-name"  // a Job is made under the name of its next one: under its control, or, if N is 1, nobody's
	DropJob       Action = "drop-job"       // its Nth Job is deleted
	PauseJob      Action = "pause-job"      // its Nth unfinished Job is suspended for For
	SetKeep       Action = "set-keep"       // it keeps N finished Jobs
	RemakeCronJob Action = "remake-cronjob" // it is deleted, and made again under its name after Delay
)

// CronJob is one that is due each minute, and whose Jobs take less.
type CronJob struct {
	Name string
	// Policy is Allow, Forbid or Replace.
	Policy string
	// Keep is how many finished Jobs are kept.
	Keep int
	// Deadline is its startingDeadlineSeconds, 0 if it has none.
	Deadline int64 `json:",omitempty"`
}

// cronJobReads are what the controller of CronJobs reads.
var cronJobReads = []string{"cronjobs", "jobs"}

// DrawCronJobs makes a schedule of CronJobs from a seed.
func DrawCronJobs(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 3)), Schedule: Schedule{Seed: seed, Nodes: 2, Settle: 3 * time.Minute}}
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(4*time.Minute, 10*time.Minute)
	for i := range 1 + d.IntN(4) {
		d.CronJobs = append(d.CronJobs, CronJob{Name: fmt.Sprint("cronjobs-", i), Policy: []string{"Allow", "Forbid", "Replace"}[d.IntN(3)], Keep: d.IntN(3)})
	}
	for range 1 + d.IntN(4) {
		minute := time.Minute * time.Duration(1+d.IntN(int(d.length/time.Minute)))
		suspend := Step{At: minute - d.between(100*time.Millisecond, 15*time.Second), Action: Suspend, Target: d.CronJobs[d.IntN(len(d.CronJobs))].Name, For: d.between(10*time.Second, 3*time.Minute)}
		d.Steps = append(d.Steps, suspend)
		if d.IntN(2) == 0 {
			d.Steps = append(d.Steps, Step{At: suspend.At - d.between(100*time.Millisecond, 5*time.Second), Action: Hold, Target: cronJobReads[d.IntN(2)], For: d.often(5*time.Second, 70*time.Second)})
		}
	}
	for range d.IntN(4) {
		on := append(cronJobReads, "pods")[d.IntN(3)]
		switch n := d.IntN(7); n {
		case 0, 1, 2, 3, 4:
			d.disturb(n, on, 70*time.Second, 10*time.Second, 2*time.Minute)
		case 5, 6:
			d.add(Step{Action: []Action{Refuse, Webhook}[d.IntN(2)], Target: d.CronJobs[d.IntN(len(d.CronJobs))].Name, For: d.often(20*time.Second, 5*time.Minute)})
		}
	}
	d.foreignJobs()
	reads := d.oneOf(cronJobReads[:2])
	d.late(reads)
	d.failing(reads)
	d.unreliable(reads)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

// foreignJobs has others change CronJobs and their Jobs in every second seed, perhaps unseen, and has requests answered with 429.
func (d *draw) foreignJobs() {
	if d.oneIn(2, 4) {
		return
	}
	for range 1 + d.IntN(5) {
		step := Step{Target: d.CronJobs[d.IntN(len(d.CronJobs))].Name}
		changed := "jobs"
		switch d.IntN(9) {
		case 0, 1:
			step.Action = AddJob
		case 2:
			step.Action, step.N = TakeName, d.IntN(2)
		case 3, 4:
			step.Action, step.N = DropJob, d.IntN(3)
		case 5:
			step.Action, step.N, step.For = PauseJob, d.IntN(2), d.often(5*time.Second, 2*time.Minute)
		case 6:
			step.Action, step.N, changed = SetKeep, d.IntN(4), "cronjobs"
		case 7:
			step.Action, step.Delay, changed = RemakeCronJob, d.often(100*time.Millisecond, 20*time.Second), "cronjobs"
		case 8:
			step.Action, step.For, changed = Suspend, d.often(time.Second, 2*time.Minute), "cronjobs"
		}
		d.add(step)
		at := d.Steps[len(d.Steps)-1].At
		switch d.IntN(4) {
		case 0:
			d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 10*time.Second), Action: Hold, Target: changed, For: d.often(5*time.Second, 70*time.Second)})
		case 1:
			// Of the event that this step makes.
			d.Steps = append(d.Steps, Step{At: at - time.Millisecond, Action: LoseEvent, Target: changed, For: 20 * time.Millisecond})
		}
	}
	for range d.IntN(3) {
		on := cronJobReads[d.IntN(2)]
		d.add(Step{Action: []Action{Broken, Throttle}[d.IntN(2)], Target: on, N: 1 + d.IntN(20), For: d.often(5*time.Second, 2*time.Minute)})
		if at := d.Steps[len(d.Steps)-1].At; d.IntN(2) == 0 {
			d.Steps = append(d.Steps, Step{At: at, Action: Hold, Target: on, For: d.often(5*time.Second, 70*time.Second)})
		}
	}
}

// LosesCronJob says that an event of CronJobs is lost.
func (s Schedule) LosesCronJob() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Action == LoseEvent && step.Target == "cronjobs" })
}

// TouchedCronJob is for how long faults disturb a CronJob, at the most.
func (s Schedule) TouchedCronJob(c CronJob) time.Duration {
	sum := s.touched(append(cronJobReads, "pods"))
	for _, step := range s.Steps {
		if (step.Action == Refuse || step.Action == Webhook) && step.Target == c.Name {
			sum += step.For
		}
	}
	return sum
}
