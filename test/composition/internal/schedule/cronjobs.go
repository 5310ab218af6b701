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

// Suspend has the CronJob Target be suspended for For.
const Suspend Action = "suspend"

// CronJob is one that is due each minute, and whose Jobs take less.
type CronJob struct {
	Name string
	// Policy is Allow, Forbid or Replace.
	Policy string
	// Keep is how many finished Jobs are kept.
	Keep int
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
		switch d.IntN(7) {
		case 0:
			d.add(Step{Action: Hold, Target: on, For: d.often(2*time.Second, 70*time.Second)})
		case 1:
			d.add(Step{Action: SlowReads, Target: on, Delay: d.often(100*time.Millisecond, 5*time.Second), For: d.often(10*time.Second, 2*time.Minute)})
		case 2:
			d.add(Step{Action: SlowWrites, Target: on, Delay: d.often(100*time.Millisecond, 10*time.Second), For: d.often(10*time.Second, 2*time.Minute)})
		case 3:
			d.add(Step{Action: LostAnswer, Target: on, For: d.often(5*time.Second, 2*time.Minute)})
		case 4:
			d.add(Step{Action: Expire, Target: on})
		case 5, 6:
			d.add(Step{Action: []Action{Refuse, Webhook}[d.IntN(2)], Target: d.CronJobs[d.IntN(len(d.CronJobs))].Name, For: d.often(20*time.Second, 5*time.Minute)})
		}
	}
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
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
