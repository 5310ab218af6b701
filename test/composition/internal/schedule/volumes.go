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

// What others do to the pod that uses the volume Target. It is made again Delay after it is gone, on the Nth node, or the first one after it that it fits; if
// N is negative it is not. The same is done, there where it was last, whenever the pod is gone.
const (
	MovePod  Action = "move-pod"  // it is deleted
	SeizePod Action = "seize-pod" // it is deleted at once, whether or not its kubelet has stopped it
)

// Volume is one that one node at a time may write to, with a pod that uses it.
type Volume struct {
	Name string
	// Node is where the pod is first.
	Node int
	// Unmount is how long a node takes to unmount it.
	Unmount time.Duration
	// Stays says that the pod tolerates every taint.
	Stays bool `json:",omitempty"`
}

// volumeReads are what the attach/detach controller reads. Others do not change while it runs.
var volumeReads = []string{"nodes", "pods", "volumeattachments"}

// forcedAfter is how long upstream waits for a node that is not ready to unmount a volume.
const forcedAfter = 6 * time.Minute

// settled is when all pods have their volumes, and no kubelet looks for one at that moment.
const settled = 7300 * time.Millisecond

// DrawVolumes makes a schedule of volumes from a seed, whose pods move, also from nodes that are not ready or out of service, perhaps while what the
// attach/detach controller reads, most often the nodes, is held, slow, refused or lost.
func DrawVolumes(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 10)), Schedule: Schedule{Seed: seed, Settle: 9 * time.Minute}}
	// Only two of the nodes ever go. Without a node that is ready node lifecycle swaps a rate limiter, whose lock it holds while it writes, and on virtual time
	// no write ends while another waits for a lock.
	d.Nodes = 3 + d.IntN(2)
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(4*time.Minute, 10*time.Minute)
	if d.IntN(12) == 0 {
		d.QPS = 2 + d.IntN(8)
	}
	for i := range 1 + d.IntN(4) {
		d.Volumes = append(d.Volumes, Volume{Name: fmt.Sprint("volume-", i), Node: d.IntN(2), Unmount: d.often(100*time.Millisecond, 80*time.Second), Stays: d.IntN(3) > 0})
	}
	for range 1 + d.IntN(6) {
		d.movePod()
	}
	for range 1 + d.IntN(3) {
		d.outage()
	}
	for range d.IntN(4) {
		d.troubleOf(volumeReads)
	}
	reads := d.oneOf(volumeReads)
	d.late(reads)
	d.unreliable(reads)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

func (d *draw) volume() Volume { return d.Volumes[d.IntN(len(d.Volumes))] }

// movePod has a pod move to any node, or go for good, perhaps unseen.
func (d *draw) movePod() {
	d.add(Step{Action: []Action{MovePod, MovePod, SeizePod}[d.IntN(3)], Target: d.volume().Name, N: d.IntN(d.Nodes+1) - 1, Delay: d.often(100*time.Millisecond, 30*time.Second)})
	at := d.Steps[len(d.Steps)-1].At
	switch d.IntN(6) {
	case 0, 1:
		d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 10*time.Second), Action: Hold, Target: volumeReads[d.IntN(len(volumeReads))], For: d.often(5*time.Second, 70*time.Second)})
	case 2:
		if d.Monitor && d.IntN(3) == 0 { // Of the event that this step makes.
			d.Steps = append(d.Steps, Step{At: at - time.Millisecond, Action: LoseEvent, Target: "pods", For: 20 * time.Millisecond})
		}
	}
}

// outage has a node with a volume be out of service, or not ready for so long that its volumes are detached by force. The pod of one is deleted at once
// meanwhile or after it, and perhaps the node is repaired unseen.
func (d *draw) outage() {
	v := d.volume()
	down := Step{Action: OutOfService, N: v.Node, Delay: d.between(10*time.Second, 90*time.Second)}
	down.For = down.Delay + d.often(5*time.Second, 2*time.Minute)
	seized := down.For + d.between(5*time.Second, 40*time.Second)
	if d.IntN(3) == 0 {
		seized = d.between(time.Second, down.For)
	}
	if d.IntN(3) == 0 {
		down.Action, down.Delay = KillNode, 0
		down.For = forcedAfter + d.between(-time.Minute, 3*time.Minute)
		seized = d.between(40*time.Second, 3*time.Minute)
	}
	d.add(down)
	at := d.Steps[len(d.Steps)-1].At
	d.Steps = append(d.Steps, Step{At: max(settled, at-d.between(30*time.Second, 2*time.Minute)), Action: MovePod, Target: v.Name, N: v.Node})
	if d.IntN(4) > 0 {
		d.Steps = append(d.Steps, Step{At: at + seized, Action: SeizePod, Target: v.Name, N: v.Node + 1, Delay: d.often(100*time.Millisecond, 30*time.Second)})
	}
	unseen := Step{At: at + down.For - d.between(0, 5*time.Second), Target: "nodes", For: d.often(30*time.Second, 2*time.Minute)}
	switch d.IntN(7) {
	case 0, 1, 2:
		unseen.Action = Hold
		d.Steps = append(d.Steps, unseen)
	case 3:
		unseen.Action, unseen.Delay = Late, d.often(5*time.Second, 20*time.Second)
		d.Steps = append(d.Steps, unseen)
	case 4: // Another node goes and comes with it, and the pass waits for what it writes of one of them.
		other := d.volume()
		down.At, down.N, unseen.Action = at, other.Node, Hold
		before := unseen.At - d.between(time.Second, 10*time.Second)
		d.Steps = append(d.Steps, down, unseen, Step{At: before, Action: SlowWrites, Target: "nodes", Delay: d.between(5*time.Second, 20*time.Second), For: unseen.For},
			Step{At: before + 500*time.Millisecond, Action: SeizePod, Target: v.Name, N: v.Node + 1}, Step{At: before + 500*time.Millisecond, Action: SeizePod, Target: other.Name, N: other.Node + 1})
	}
}

// TouchedVolumes is for how long faults disturb the attach/detach controller, at the most.
func (s Schedule) TouchedVolumes() time.Duration { return s.touchedOrUnprovable(volumeReads) }

// TouchedNodes is for how long what is written of nodes fails, or its answers are lost.
func (s Schedule) TouchedNodes() (sum time.Duration) {
	for _, step := range s.Steps {
		if step.Target == "nodes" && (step.Action == LostAnswer || step.Action == Throttle) {
			sum += step.For
		}
	}
	return sum
}
