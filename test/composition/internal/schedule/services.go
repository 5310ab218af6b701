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

// What others do to nodes and Services.
const (
	NodeComes   Action = "node-comes"   // the Nth node, which is not there at the start, is made
	ServiceGone Action = "service-gone" // the Service Target is deleted, and made again under its name after For
	Reselect    Action = "reselect"     // the Service Target selects the pods of the Nth owner
)

// Service selects the pods of an owner.
type Service struct{ Name, Over string }

// sliceReads are what the controller of EndpointSlices reads.
var sliceReads = []string{"nodes", "pods", "services", "endpointslices"}

// DrawServices makes a schedule of Services from a seed: nodes come, and pods run there, while what the controller of EndpointSlices
// reads, most often the nodes, is held, slow, refused or lost.
func DrawServices(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 5)), Schedule: Schedule{Seed: seed, Settle: 3 * time.Minute}}
	d.LateNodes = 1 + d.IntN(3)
	most := 6
	if d.IntN(8) == 0 {
		d.LateNodes, most = 8+d.IntN(8), 30 // More than are looked up at once.
	}
	d.Nodes = 2 + d.IntN(3) + d.LateNodes
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(2*time.Minute, 6*time.Minute)
	if d.IntN(10) == 0 {
		d.QPS = 2 + d.IntN(8)
	}
	for i := range 1 + d.IntN(3) {
		kind := []string{"ReplicaSet", "ReplicaSet", "DaemonSet", "StatefulSet"}[d.IntN(4)]
		d.Owners = append(d.Owners, Owner{Kind: kind, Name: fmt.Sprintf("%s-%d", resourceOf[kind], i), Replicas: 1 + d.IntN(most)})
	}
	for i := range 1 + d.IntN(4) {
		d.Services = append(d.Services, Service{Name: fmt.Sprint("services-", i), Over: d.owner().Name})
	}
	for i := range d.LateNodes {
		comes := Step{At: d.between(20*time.Second, d.length), Action: NodeComes, N: d.Nodes - d.LateNodes + i}
		if i > 3 {
			comes.At = d.Steps[0].At + d.between(0, 5*time.Second)
		}
		d.Steps = append(d.Steps, comes)
		if i > 3 {
			continue
		}
		if d.IntN(3) > 0 {
			trouble := d.nodeTrouble(comes.At)
			d.Steps = append(d.Steps, trouble)
			if trouble.Action == Hold && d.IntN(3) == 0 {
				// It cannot be read at once either.
				trouble.Action, trouble.Delay = SlowReads, d.often(300*time.Millisecond, 3*time.Second)
				d.Steps = append(d.Steps, trouble)
			}
		}
		for range d.IntN(3) {
			d.Steps = append(d.Steps, Step{At: comes.At + d.between(100*time.Millisecond, 20*time.Second), Action: Scale, Target: d.owner().Name, N: 1 + d.IntN(most)})
		}
	}
	for range 2 + d.IntN(6) {
		d.serviceWork(most)
	}
	for range d.IntN(4) {
		d.serviceTrouble()
	}
	ofSlices := func() string { return "endpointslices" }
	d.failing(ofSlices)
	d.unreliable(ofSlices)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

// nodeTrouble is a fault of the nodes about the time at which one comes.
func (d *draw) nodeTrouble(at time.Duration) Step {
	s := Step{At: at - d.between(100*time.Millisecond, 10*time.Second), Action: Hold, Target: "nodes", For: d.often(10*time.Second, 90*time.Second)}
	switch d.IntN(8) {
	case 0:
		s.Action, s.Delay = SlowReads, d.often(100*time.Millisecond, 3*time.Second)
	case 1:
		s.Action, s.At, s.For = LoseEvent, at-time.Millisecond, 20*time.Millisecond
	case 2:
		s.Action, s.N = Throttle, 1+d.IntN(10)
	}
	return s
}

func (d *draw) serviceWork(most int) {
	o, service := d.owner(), d.Services[d.IntN(len(d.Services))]
	switch d.IntN(11) {
	case 0, 1:
		d.add(Step{Action: Scale, Target: o.Name, N: d.IntN(most)})
	case 2:
		d.add(Step{Action: Roll, Target: o.Name})
	case 3, 4:
		for range 1 + d.IntN(3) {
			d.add(Step{Action: Unready, Target: o.Name, N: d.IntN(5), For: d.often(time.Second, 20*time.Second)})
		}
	case 5:
		d.add(Step{Action: DeletePod, Target: o.Name, N: d.IntN(5)})
	case 6:
		d.add(Step{Action: Taint, N: d.IntN(d.Nodes), For: d.often(time.Second, 30*time.Second)})
	case 7:
		d.add(Step{Action: NodeGone, N: d.IntN(d.Nodes), For: d.often(5*time.Second, 2*time.Minute)})
	case 8, 9:
		d.add(Step{Action: ServiceGone, Target: service.Name, For: d.often(100*time.Millisecond, 30*time.Second)})
	case 10:
		d.add(Step{Action: Reselect, Target: service.Name, N: d.IntN(len(d.Owners))})
	}
}

func (d *draw) serviceTrouble() {
	on := sliceReads[d.IntN(len(sliceReads))]
	switch n := d.IntN(8); n {
	case 0, 1, 2, 3, 4, 5:
		d.disturb(max(n-1, 0), on, time.Minute, 5*time.Second, time.Minute)
	case 6:
		d.add(Step{Action: Throttle, Target: on, N: 1 + d.IntN(10), For: d.often(5*time.Second, time.Minute)})
	case 7:
		d.add(Step{Action: Broken, Target: "nodes", N: 1 + d.IntN(30), For: d.often(10*time.Second, time.Minute)})
	}
}

// TouchedService is for how long faults disturb a Service, at the most.
func (s Schedule) TouchedService(service Service) time.Duration {
	sum := s.touched(sliceReads)
	for _, o := range s.Owners {
		sum += s.touched([]string{resourceOf[o.Kind]})
	}
	return sum
}

// EndpointsTouchedAt says that at a time, or before, a fault disturbed what the controller of EndpointSlices does not look up: all but the
// nodes, and these where they cannot be read at once. After it upstream's backoff goes on for longer than the fault lasted.
func (s Schedule) EndpointsTouchedAt(at time.Duration) bool {
	const settle = 5 * time.Second
	var failing time.Duration // The backoff of one time in which writes fail goes on from that of the one before.
	for _, step := range s.Steps {
		if step.Action == FailWrites {
			failing += 2 * step.For
		}
	}
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		d := step.touches(step.Target)
		if step.Action == FailWrites {
			d = failing
		}
		if step.Action == Down && at >= step.At && at <= step.At+step.For+reflectorBackoff {
			return true
		}
		reads := step.Action == SlowReads || step.Action == Throttle || step.Action == Broken
		concerns := step.Target == "nodes" && reads || slices.Contains(sliceReads[1:], step.Target)
		return d > 0 && concerns && at >= step.At && at <= step.At+2*step.For+d+settle
	})
}
