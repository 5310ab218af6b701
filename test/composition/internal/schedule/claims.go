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

// What others do to the pod Target that claims devices, and to its claims.
const (
	EndClaimer    Action = "end-claimer"    // it ends
	RemakeClaimer Action = "remake-claimer" // it is deleted, with N seconds of grace or, if N is 0, its default, and made again under its name Delay after it is gone
	DropClaim     Action = "drop-claim"     // its Nth claim is deleted; a shared one is made again under its name once it is gone
	TouchClaim    Action = "touch-claim"    // its Nth claim gets an annotation
	TaintDevices  Action = "taint-devices"  // their device gets a NoExecute taint
)

// Claimer is a pod that claims devices.
type Claimer struct {
	Name string
	// Own is how many claims are made for it of a template, Shared are those that it shares with others.
	Own    int   `json:",omitempty"`
	Shared []int `json:",omitempty"`
	// Bound says that whoever makes it puts it on a node, so that no scheduler reserves its claims.
	Bound bool `json:",omitempty"`
}

// claimReads are what the controller of resource claims reads.
var claimReads = []string{"pods", "resourceclaims", "resourceclaimtemplates"}

// DrawClaims makes a schedule of pods that claim devices from a seed: they end, are deleted, and made again under their names, perhaps
// while what the controller of resource claims reads, most often the pods, is held, slow, refused or lost.
func DrawClaims(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 8)), Schedule: Schedule{Seed: seed, Nodes: 2, Settle: 4 * time.Minute}}
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(2*time.Minute, 6*time.Minute)
	if d.IntN(12) == 0 {
		d.QPS = 2 + d.IntN(8)
	}
	shared := d.IntN(3)
	for i := range 1 + d.IntN(5) {
		c := Claimer{Name: fmt.Sprint("claimer-", i), Own: d.IntN(3)}
		for n := range shared {
			if d.IntN(2) == 0 {
				c.Shared = append(c.Shared, n)
			}
		}
		if len(c.Shared) > 0 && d.IntN(4) == 0 {
			c.Own, c.Bound = 0, true
		} else if len(c.Shared) == 0 {
			c.Own = max(1, c.Own)
		}
		d.Claimers = append(d.Claimers, c)
	}
	for _, c := range d.Claimers {
		for range 1 + d.IntN(4) {
			d.endOf(c)
		}
	}
	for range d.IntN(6) {
		d.add(Step{Action: []Action{DropClaim, TouchClaim, TouchClaim}[d.IntN(3)], Target: d.claimer().Name, N: d.IntN(3)})
		if at := d.Steps[len(d.Steps)-1].At; d.IntN(4) == 0 {
			d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 5*time.Second), Action: Hold, Target: claimReads[d.IntN(2)], For: d.often(5*time.Second, 70*time.Second)})
		}
	}
	for range d.IntN(4) {
		d.claimTrouble()
	}
	reads := d.oneOf(claimReads[:2])
	d.late(reads)
	d.failing(reads)
	d.unreliable(reads)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

func (d *draw) claimer() Claimer { return d.Claimers[d.IntN(len(d.Claimers))] }

// endOf has a pod end, be deleted and made again, perhaps while the pods, or the claims, are not seen.
func (d *draw) endOf(c Claimer) {
	again := Step{Action: RemakeClaimer, Target: c.Name, N: d.IntN(2), Delay: d.often(100*time.Millisecond, 20*time.Second)}
	d.add(again)
	at := d.Steps[len(d.Steps)-1].At
	if d.IntN(2) == 0 {
		d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 20*time.Second), Action: EndClaimer, Target: c.Name})
	}
	before := d.between(100*time.Millisecond, 5*time.Second)
	switch d.IntN(6) {
	case 0, 1:
		d.Steps = append(d.Steps, Step{At: at - before, Action: Hold, Target: "pods", For: d.often(10*time.Second, 70*time.Second)})
	case 2:
		d.Steps = append(d.Steps, Step{At: at - before, Action: Hold, Target: "resourceclaims", For: d.often(10*time.Second, 70*time.Second)})
	case 3:
		if d.IntN(3) == 0 { // Of the event that this step makes.
			d.Steps = append(d.Steps, Step{At: at - time.Millisecond, Action: LoseEvent, Target: "pods", For: 20 * time.Millisecond})
		}
	}
}

func (d *draw) claimTrouble() {
	on := claimReads[d.IntN(len(claimReads))]
	switch n := d.IntN(9); n {
	case 0, 1, 2, 3, 4, 5:
		d.disturb(max(n-1, 0), on, 70*time.Second, 10*time.Second, 2*time.Minute)
	case 6:
		d.add(Step{Action: []Action{Throttle, Broken}[d.IntN(2)], Target: on, N: 1 + d.IntN(20), For: d.often(5*time.Second, time.Minute)})
	case 7, 8:
		d.add(Step{Action: []Action{Refuse, Webhook}[d.IntN(2)], Target: d.claimer().Name, For: d.often(20*time.Second, 2*time.Minute)})
	}
}

// TouchedClaims is for how long faults disturb the claims of pods, at the most.
func (s Schedule) TouchedClaims() time.Duration {
	sum := s.touched(claimReads)
	for _, step := range s.Steps {
		if step.Action == Refuse || step.Action == Webhook {
			sum += step.For
		}
	}
	return sum
}
