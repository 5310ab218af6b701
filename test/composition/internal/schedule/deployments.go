// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Deployments says that the controller of Deployments runs.
func (s Schedule) Deployments() bool {
	return slices.ContainsFunc(s.Owners, func(o Owner) bool { return o.Kind == "Deployment" }) ||
		slices.ContainsFunc(s.Families, func(f Family) bool { return f.Kind == "Deployment" }) ||
		slices.ContainsFunc(s.Autoscalers, func(a Autoscaler) bool { return a.Kind == "Deployment" })
}

// deployments has every second seed have Deployments, which are rolled, perhaps while what their controller reads is held.
func (d *draw) deployments() {
	if d.oneIn(2, 2) {
		return
	}
	for i := range 1 + d.IntN(2) {
		o := Owner{Kind: "Deployment", Name: fmt.Sprint("deployments-", i), Replicas: 1 + d.IntN(5), Recreate: d.IntN(2) == 0}
		d.Owners = append(d.Owners, o)
		for range 1 + d.IntN(4) {
			d.add(Step{Action: Roll, Target: o.Name})
			if at := d.Steps[len(d.Steps)-1].At; d.IntN(4) == 0 {
				reads := o.Reads()
				d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 10*time.Second), Action: []Action{Hold, SlowReads, SlowWrites, LostAnswer}[d.IntN(4)],
					Target: reads[d.IntN(len(reads))], Delay: d.often(100*time.Millisecond, 3*time.Second), For: d.often(2*time.Second, 40*time.Second)})
			}
		}
		for range d.IntN(4) {
			switch d.IntN(4) {
			case 0:
				d.add(Step{Action: Scale, Target: o.Name, N: d.IntN(6)})
			case 1:
				d.add(Step{Action: Flip, Target: o.Name, For: d.often(100*time.Millisecond, 5*time.Second)})
			case 2:
				d.add(Step{Action: Unready, Target: o.Name, N: d.IntN(5), For: d.often(time.Second, 20*time.Second)})
			case 3:
				d.add(Step{Action: DeletePod, Target: o.Name, N: d.IntN(5)})
			}
		}
	}
}
