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

// What others do to the autoscaler Target, whose workload has its name. Scale, Roll, Unready and DeletePod are done to the workload.
const (
	SetLoad          Action = "set-load"          // its workload has the load N
	SetLeast         Action = "set-least"         // it has at least N replicas
	SetMost          Action = "set-most"          // it has at most N replicas
	RemakeAutoscaler Action = "remake-autoscaler" // it is deleted, and made again under its name after Delay
)

// TargetLoad is the load that one pod is there for.
const TargetLoad = 1000

// Metric is what an autoscaler goes by. All but the last are multiplied by the pods that are ready.
type Metric string

// The metrics.
const (
	ByCPU     Metric = "cpu"     // in percent of what a pod asks for
	ByValue   Metric = "value"   // an external one that falls with the pods that are ready
	ByAverage Metric = "average" // an external one for all pods
)

// Autoscaler is one with its workload.
type Autoscaler struct {
	Name string
	// Kind is Deployment or ReplicaSet.
	Kind                  string
	Metric                Metric
	Least, Most, Replicas int
	// Window is the window of stabilization before replicas are lowered; negative: the default one.
	Window time.Duration
	// Late is how long a pod runs before it is ready.
	Late time.Duration `json:",omitempty"`
	// Load is what there is at the start.
	Load int
}

// Owner is the workload.
func (a Autoscaler) Owner() Owner { return Owner{Kind: a.Kind, Name: a.Name, Replicas: a.Replicas} }

// LoadAt is the load of an autoscaler's workload, which follows from the time alone.
func (s Schedule) LoadAt(a Autoscaler, at time.Duration) int {
	load, since := a.Load, time.Duration(-1)
	for _, step := range s.Steps {
		if step.Action == SetLoad && step.Target == a.Name && step.At <= at && step.At >= since {
			load, since = step.N, step.At
		}
	}
	return load
}

// autoscalerReads are what the controller of autoscalers reads, and its workloads' controllers.
var autoscalerReads = []string{"pods", "horizontalpodautoscalers", "deployments", "replicasets"}

// DrawAutoscalers makes a schedule of autoscalers from a seed, whose load rises and falls, perhaps while pods that have become ready, or
// changed limits, are not seen.
func DrawAutoscalers(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 9)), Schedule: Schedule{Seed: seed, Nodes: 2, Settle: 8 * time.Minute}}
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(4*time.Minute, 12*time.Minute)
	if d.IntN(12) == 0 {
		d.QPS = 2 + d.IntN(8)
	}
	for i := range 1 + d.IntN(3) {
		a := Autoscaler{Name: fmt.Sprint("autoscaler-", i), Kind: []string{"Deployment", "ReplicaSet"}[d.IntN(2)], Metric: []Metric{ByCPU, ByValue, ByValue, ByAverage}[d.IntN(4)], Least: 1 + d.IntN(3)}
		a.Most = a.Least + 3 + d.IntN(10)
		a.Replicas = a.Least + d.IntN(a.Most-a.Least)
		a.Window = []time.Duration{-1, 0, 0, 30 * time.Second, time.Minute}[d.IntN(5)]
		if d.IntN(3) > 0 {
			a.Late = d.often(time.Second, 90*time.Second)
		}
		a.Load = a.Replicas * TargetLoad
		d.Autoscalers = append(d.Autoscalers, a)
	}
	for _, a := range d.Autoscalers {
		for range 1 + d.IntN(4) {
			d.wave(a)
		}
	}
	for range d.IntN(5) {
		d.foreignScale(d.Autoscalers[d.IntN(len(d.Autoscalers))])
	}
	for range d.IntN(4) {
		d.troubleOf(autoscalerReads)
	}
	reads := d.oneOf(autoscalerReads)
	d.late(reads)
	d.failing(reads)
	d.unreliable(reads)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

// wave has the load change from anything to anything else, or rise twice, the second time while the pods that became ready since are perhaps not seen.
func (d *draw) wave(a Autoscaler) {
	d.add(Step{Action: SetLoad, Target: a.Name, N: d.IntN(TargetLoad * (a.Most + 2))})
	first := &d.Steps[len(d.Steps)-1]
	switch d.IntN(3) {
	case 0:
		return
	case 1:
		d.Steps = append(d.Steps, Step{At: first.At + d.between(10*time.Second, time.Minute), Action: SetLoad, Target: a.Name, N: first.N * (70 + d.IntN(70)) / 100})
		return
	}
	first.N = TargetLoad * (a.Most/2 + d.IntN(a.Most/2+1))
	d.Steps = append(d.Steps, Step{At: first.At + d.between(20*time.Second, 80*time.Second), Action: SetLoad, Target: a.Name, N: first.N * (115 + d.IntN(40)) / 100},
		Step{At: first.At + d.between(5*time.Second, 20*time.Second), Action: Hold, Target: "pods", For: d.between(30*time.Second, 100*time.Second)})
}

// foreignScale has others change an autoscaler or its workload, perhaps unseen.
func (d *draw) foreignScale(a Autoscaler) {
	step, changed := Step{Target: a.Name}, "horizontalpodautoscalers"
	switch d.IntN(8) {
	case 0:
		step.Action, step.N = SetLeast, 1+d.IntN(a.Most)
	case 1, 2:
		step.Action, step.N = SetMost, 1+d.IntN(a.Most+5)
	case 3:
		step.Action, step.Delay = RemakeAutoscaler, d.often(100*time.Millisecond, 20*time.Second)
	case 4, 5:
		step.Action, step.N, changed = Scale, 1+d.IntN(a.Most+2), "pods"
	case 6:
		step.Action, step.N, step.For, changed = Unready, d.IntN(10), d.often(5*time.Second, time.Minute), "pods"
	case 7:
		step.Action, step.N, changed = []Action{Roll, DeletePod}[d.IntN(2)], d.IntN(10), "pods"
	}
	d.add(step)
	at := d.Steps[len(d.Steps)-1].At
	switch d.IntN(4) {
	case 0, 1:
		d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 10*time.Second), Action: Hold, Target: changed, For: d.often(5*time.Second, 80*time.Second)})
	case 2:
		if d.Monitor && d.IntN(3) == 0 { // Of the event that this step makes.
			d.Steps = append(d.Steps, Step{At: at - time.Millisecond, Action: LoseEvent, Target: changed, For: 20 * time.Millisecond})
		}
	}
}

// TouchedAutoscalers is for how long faults disturb autoscalers and their workloads, at the most.
func (s Schedule) TouchedAutoscalers() time.Duration { return s.touchedOrUnprovable(autoscalerReads) }

// GoesOnUnproven says that a fault may keep anything from being told of a cache for a minute, after which replicas are lowered without a proof.
func (s Schedule) GoesOnUnproven() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.Contains([]Action{Unprovable, Throttle, Broken}, step.Action) && step.For+time.Duration(step.N)*time.Second >= time.Minute
	})
}
