// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/controller"
)

// replaceTime is the least until an owner is made again: by then what the last one owned is gone.
const replaceTime = 2 * time.Second

// reflectorBackoff is how much longer than the server an informer may be without a watch.
const reflectorBackoff = time.Minute

// storageRetry is after how many seconds the server asks to send a write again that its storage was too slow for (k8s.io/apiserver, pkg/storage/errors).
const storageRetry = 2

// kinds of owners, and the resource of each.
var kinds = []string{"ReplicaSet", "DaemonSet", "StatefulSet", "Job", "ReplicationController"}

// resourceOf is the resource of a kind of owner.
var resourceOf = map[string]string{
	"ReplicaSet": "replicasets", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets", "Job": "jobs", "ReplicationController": "replicationcontrollers",
	"Deployment": "deployments",
}

// Reads are the resources that an owner's controller reads.
func (o Owner) Reads() []string {
	reads := []string{"pods", resourceOf[o.Kind]}
	switch o.Kind {
	case "Deployment":
		reads = append(reads, "replicasets")
	case "DaemonSet":
		reads = append(reads, "nodes", "controllerrevisions")
	case "StatefulSet":
		reads = append(reads, "controllerrevisions", "persistentvolumeclaims")
	}
	if o.Namespace != "" {
		reads = append(reads, "resourcequotas")
	}
	return reads
}

// draw is one schedule in the making.
type draw struct {
	*rand.Rand
	Schedule
	length time.Duration
}

// Draw makes the schedule of a seed.
func Draw(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 0)), Schedule: Schedule{Seed: seed, Settle: 3 * time.Minute}}
	d.Nodes = 2 + d.IntN(4)
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(2*time.Minute, 8*time.Minute)
	if d.IntN(10) == 0 {
		d.QPS = 2 + d.IntN(8)
	}
	for i, n := 0, 2+d.IntN(4); i < n; i++ {
		// ReplicaSets and DaemonSets are half of all.
		kind := kinds[d.IntN(2)]
		if d.IntN(2) == 0 {
			kind = kinds[d.IntN(len(kinds))]
		}
		o := Owner{Kind: kind, Name: fmt.Sprintf("%s-%d", resourceOf[kind], i), Replicas: 1 + d.IntN(5)}
		o.Claims = kind == "StatefulSet" && d.IntN(2) == 0
		d.Owners = append(d.Owners, o)
	}
	switch d.IntN(16) {
	case 0, 1:
		d.queue()
	case 2, 3:
		d.unwanted()
	default:
		for range 1 + d.IntN(3) {
			d.trouble()
		}
	}
	for range 2 + d.IntN(8) {
		d.work()
	}
	d.guards()
	d.deployments()
	d.late(d.resource)
	d.failing(d.published)
	d.ending()
	d.others()
	d.variants()
	d.rollouts()
	d.unreliable(d.published)
	d.specs()
	d.outages()
	d.slowPods()
	d.machines()
	d.churn()
	d.timeOuts()
	d.crowd()
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

// oneIn reports whether the seed is one in n, by a stream of numbers of its own, from which it draws from then on: the rest of a seed stays as it is.
func (d *draw) oneIn(n int, stream uint64) bool {
	d.Rand = rand.New(rand.NewPCG(d.Seed, stream))
	return d.IntN(n) == 0
}

// between draws evenly, in tenths of a second.
func (d *draw) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(d.Int64N(int64(high-low)))).Truncate(100 * time.Millisecond)
}

// often draws small values as often as large ones.
func (d *draw) often(low, high time.Duration) time.Duration {
	return d.between(low, min(high, low+d.between(low, high)))
}

func (d *draw) add(s Step) {
	s.At = d.between(20*time.Second, d.length)
	d.Steps = append(d.Steps, s)
}

// disturb adds the nth, of 5, of what may happen to a resource for a while: it is held for up to hold, or its reads are slow, its writes take up to delay,
// or answers to them are lost, for up to most, or its watches expire.
func (d *draw) disturb(n int, on string, hold, delay, most time.Duration) {
	switch n {
	case 0:
		d.add(Step{Action: Hold, Target: on, For: d.often(2*time.Second, hold)})
	case 1:
		d.add(Step{Action: SlowReads, Target: on, Delay: d.often(100*time.Millisecond, 5*time.Second), For: d.often(10*time.Second, most)})
	case 2:
		d.add(Step{Action: SlowWrites, Target: on, Delay: d.often(100*time.Millisecond, delay), For: d.often(10*time.Second, most)})
	case 3:
		d.add(Step{Action: LostAnswer, Target: on, For: d.often(5*time.Second, most)})
	case 4:
		d.add(Step{Action: Expire, Target: on})
	}
}

// oneOf draws one of some resources each time.
func (d *draw) oneOf(resources []string) func() string {
	return func() string { return resources[d.IntN(len(resources))] }
}

func (d *draw) owner() Owner { return d.Owners[d.IntN(len(d.Owners))] }

// late has events of a resource come late in every fourth seed, also to proofs, while others' objects change.
func (d *draw) late(resource func() string) {
	if !d.oneIn(4, 7) {
		return
	}
	for range 1 + d.IntN(2) {
		d.add(Step{Action: Late, Target: resource(), Delay: d.often(time.Second, 15*time.Second), For: d.often(20*time.Second, 2*time.Minute)})
		if at := d.Steps[len(d.Steps)-1]; d.IntN(2) == 0 && len(d.Owners) > 0 {
			d.Steps = append(d.Steps, Step{At: at.At, Action: Flap, Target: d.owner().Name, Delay: d.between(300*time.Millisecond, 5*time.Second), For: at.For})
		}
	}
}

// failing has writes of a resource fail in every fourth seed.
func (d *draw) failing(resource func() string) {
	if !d.oneIn(4, 10) {
		return
	}
	for range 1 + d.IntN(2) {
		d.add(Step{Action: FailWrites, Target: resource(), For: d.often(10*time.Second, 5*time.Minute)})
	}
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Action == FailWrites && d.IntN(2) == 0 {
			s.N = refusals[d.IntN(len(refusals))]
		}
	}
}

// ending has an owner's pods deleted while its namespace is, in every eighth seed.
func (d *draw) ending() {
	if !d.oneIn(8, 11) {
		return
	}
	d.refusal(Ending)
	last := d.Steps[len(d.Steps)-2]
	for range d.IntN(5) {
		d.Steps = append(d.Steps, Step{At: last.At + d.between(0, last.For), Action: DeletePod, Target: last.Target, N: d.IntN(5)})
	}
}

// refusals are how a server refuses writes: by a policy, for a version or a name that is another's, as not valid, and while it is too busy.
var refusals = []int{http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}

// variants has owners be of less common kinds in every third seed.
func (d *draw) variants() {
	if !d.oneIn(3, 13) {
		return
	}
	for i := range d.Owners {
		o := &d.Owners[i]
		switch o.Kind {
		case "StatefulSet":
			o.Parallel = d.IntN(2) == 0
		case "Job":
			o.Indexed = d.IntN(2) == 0
			if d.IntN(2) == 0 {
				o.Failures = 1 + d.IntN(2)
				for range 1 + d.IntN(5) {
					d.add(Step{Action: FailPod, Target: o.Name, N: d.IntN(5)})
				}
			}
		}
		if o.Kind != "Job" && d.IntN(2) == 0 {
			o.MinReady = 1 + d.IntN(20)
		}
	}
}

// rollouts has DaemonSets surge, or roll some nodes at once, with pods that take a while to be available, and new templates before they are, in every fourth seed.
func (d *draw) rollouts() {
	slow := slices.ContainsFunc(d.Owners, func(o Owner) bool { return strings.HasPrefix(o.Name, "daemonsets-queue-") }) // Chance decides there whose turn it is.
	if !d.oneIn(4, 14) || slow {
		return
	}
	for i := range d.Owners {
		o := &d.Owners[i]
		if o.Kind != "DaemonSet" {
			continue
		}
		if d.IntN(2) == 0 {
			o.Surge = 1 + d.IntN(3)
		} else {
			o.MaxUnavailable = 1 + d.IntN(3)
		}
		if d.IntN(3) > 0 {
			o.MinReady = 1 + d.IntN(25)
		}
		for range 1 + d.IntN(3) {
			d.add(Step{Action: Roll, Target: o.Name})
		}
	}
}

// outages has requests be throttled or time out, proofs fail, or kube-controller-manager restart, in every fourth seed.
func (d *draw) outages() {
	if !d.oneIn(4, 18) {
		return
	}
	for range 1 + d.IntN(2) {
		switch d.IntN(4) {
		case 0:
			d.add(Step{Action: Throttle, Target: d.resource(), N: 1 + d.IntN(10), For: d.often(5*time.Second, time.Minute)})
		case 1:
			d.add(Step{Action: FailWrites, Target: d.resource(), N: http.StatusGatewayTimeout, For: d.often(5*time.Second, time.Minute)})
		case 2:
			d.add(Step{Action: Unprovable, For: d.often(10*time.Second, 2*time.Minute)})
		case 3:
			d.add(Step{Action: Restart})
		}
	}
}

// timeOuts has etcd be too slow for writes of a resource, or the server too busy, in every fourth seed: the server asks to send them again after storageRetry.
func (d *draw) timeOuts() {
	if !d.oneIn(4, 22) {
		return
	}
	for range 1 + d.IntN(2) {
		d.add(Step{Action: []Action{TimeOut, PutOff}[d.IntN(2)], Target: d.resource(), N: storageRetry, For: d.often(3*time.Second, 5*time.Minute)})
	}
}

// slowPods has the pods of owners take longer to be ready, or to end, in every fourth seed.
func (d *draw) slowPods() {
	if !d.oneIn(4, 19) {
		return
	}
	for i := range d.Owners {
		o := &d.Owners[i]
		if d.IntN(2) == 0 {
			o.Starts = d.often(100*time.Millisecond, 20*time.Second)
		}
		if d.IntN(2) == 0 {
			o.Stops = d.often(100*time.Millisecond, 30*time.Second)
		}
	}
	d.Settle += 3 * time.Minute
}

// machines has nodes die, go and come, in every sixth seed.
func (d *draw) machines() {
	if !d.oneIn(6, 20) {
		return
	}
	for range 1 + d.IntN(2) {
		switch n := d.IntN(3); {
		case n == 0:
			d.add(Step{Action: NodeComes, N: d.Nodes})
			d.Nodes, d.LateNodes = d.Nodes+1, d.LateNodes+1
		case n == 1 && d.Ended > 0: // Nobody else deletes the pods of a node that is gone.
			d.add(Step{Action: NodeGone, N: d.IntN(d.Nodes - d.LateNodes), For: d.often(5*time.Second, 2*time.Minute)})
		default:
			d.add(Step{Action: KillNode, N: d.IntN(d.Nodes - d.LateNodes), For: d.often(5*time.Second, 3*time.Minute)})
		}
	}
}

// churn has an owner be changed again and again within a short time, in every fourth seed.
func (d *draw) churn() {
	if !d.oneIn(4, 21) {
		return
	}
	o, at := d.owner(), d.between(20*time.Second, d.length)
	for range 3 + d.IntN(12) {
		s := Step{At: at, Target: o.Name, N: d.IntN(8)}
		switch d.IntN(4) {
		case 0:
			s.Action = Scale
		case 1:
			s.Action = Roll
		case 2:
			s.Action, s.For = Flip, d.often(100*time.Millisecond, 2*time.Second)
		case 3:
			s.Action = DeletePod
		}
		d.Steps = append(d.Steps, s)
		at += d.often(100*time.Millisecond, 5*time.Second)
	}
}

// specs has owners ask for what is less common, and Deployments be paused and rolled back, and Jobs suspended, in every third seed.
func (d *draw) specs() {
	if !d.oneIn(3, 17) {
		return
	}
	for i := range d.Owners {
		o := &d.Owners[i]
		slow := strings.HasPrefix(o.Name, "daemonsets-queue-") // Chance decides there whose turn it is.
		switch {
		case o.Kind == "Deployment":
			o.Surge, o.MaxUnavailable, o.NoHistory = d.IntN(4), d.IntN(3), d.IntN(2) == 0
			if d.IntN(2) == 0 {
				o.Deadline = 25 + d.IntN(60)
			}
			d.paused(o, time.Minute)
			d.rolledBack(o)
		case o.Kind == "DaemonSet" && !slow:
			o.NoHistory = d.IntN(2) == 0
			if o.Manual = d.IntN(2) == 0; o.Manual {
				d.deletions(o)
			}
			d.rolledBack(o)
		case o.Kind == "StatefulSet":
			o.NoHistory, o.DropClaims, o.MaxUnavailable = d.IntN(2) == 0, d.IntN(2) == 0, d.IntN(3)
			if o.Manual = d.IntN(3) == 0; o.Manual {
				d.deletions(o)
			} else {
				o.Partition = d.IntN(3)
			}
			for range d.IntN(3) {
				d.add([]Step{{Action: RollBack, Target: o.Name}, {Action: Scale, Target: o.Name, N: d.IntN(6)}}[d.IntN(2)])
			}
		case o.Kind == "Job":
			o.EndFirst = d.IntN(2) == 0
			if d.IntN(3) == 0 {
				o.Deadline = 30 + d.IntN(240)
			}
			d.paused(o, 2*time.Minute)
		}
	}
}

// paused has an owner be paused, or not, for up to most.
func (d *draw) paused(o *Owner, most time.Duration) {
	for range d.IntN(3) {
		d.add(Step{Action: Pause, Target: o.Name, For: d.often(100*time.Millisecond, most)})
	}
}

// rolledBack has an owner be rolled back, or not.
func (d *draw) rolledBack(o *Owner) {
	for range d.IntN(3) {
		d.add(Step{Action: RollBack, Target: o.Name})
	}
}

// deletions has some pods of an owner be deleted.
func (d *draw) deletions(o *Owner) {
	for range 1 + d.IntN(5) {
		d.add(Step{Action: DeletePod, Target: o.Name, N: d.IntN(5)})
	}
}

// unreliable has a webhook fail now and then, or only after a while, the server be out of reach, or informers come to an apiserver that stands still, in every
// fourth seed.
func (d *draw) unreliable(resource func() string) {
	if !d.oneIn(4, 15) {
		return
	}
	cases := 3
	if len(d.Owners) > 0 {
		cases = 4
	}
	switch d.IntN(cases) {
	case 0:
		for range 1 + d.IntN(2) {
			d.add(Step{Action: Flaky, Target: resource(), N: 2 + d.IntN(4), For: d.often(10*time.Second, 5*time.Minute)})
		}
	case 1:
		for range 1 + d.IntN(2) {
			d.add(Step{Action: Down, For: d.often(time.Second, time.Minute)})
		}
	case 2:
		for range 1 + d.IntN(2) {
			d.add(Step{Action: Lag, Target: resource(), For: d.often(2*time.Second, 90*time.Second)})
			lag := d.Steps[len(d.Steps)-1]
			d.Steps = append(d.Steps, Step{At: lag.At + d.between(100*time.Millisecond, lag.For), Action: Expire, Target: lag.Target})
		}
	case 3:
		for range 1 + d.IntN(2) {
			d.refusal(Webhook)
			d.Steps[len(d.Steps)-2].Delay = d.often(time.Second, 15*time.Second)
		}
	}
}

// crowd has more owners of a kind, or one of more pods, than controllers handle at once, in every eighth seed.
func (d *draw) crowd() {
	if !d.oneIn(8, 16) {
		return
	}
	like := d.owner()
	n, replicas := 10+d.IntN(20), 1+d.IntN(5)
	if d.IntN(2) == 0 {
		n, replicas = 1, 30+d.IntN(100)
	}
	at := d.between(20*time.Second, d.length)
	for i := range n {
		o := Owner{Kind: like.Kind, Name: fmt.Sprint("crowd-", i), Replicas: replicas, Parallel: like.Kind == "StatefulSet"}
		d.Owners = append(d.Owners, o)
		for range 1 + d.IntN(3) {
			s := Step{At: at + d.between(0, 30*time.Second), Target: o.Name, N: d.IntN(2 * replicas)}
			switch d.IntN(4) {
			case 0:
				s.Action = Scale
			case 1:
				s.Action = Roll
			case 2:
				s.Action = DeletePod
			case 3:
				s.Action, s.For = Unready, d.often(time.Second, 20*time.Second)
			}
			d.Steps = append(d.Steps, s)
		}
	}
}

// others has others meddle with owners and their pods in every third seed.
func (d *draw) others() {
	if !d.oneIn(3, 12) {
		return
	}
	for range 1 + d.IntN(4) {
		o := d.owner()
		switch d.IntN(5) {
		case 0, 1:
			d.add(Step{Action: FailPod, Target: o.Name, N: d.IntN(5)})
		case 2:
			d.add(Step{Action: Unlabel, Target: o.Name, N: d.IntN(5), For: d.often(100*time.Millisecond, time.Minute)})
		case 3:
			d.add(Step{Action: Annotate, Target: o.Name, N: 1 + d.IntN(10), For: d.often(5*time.Second, 2*time.Minute)})
		case 4:
			if o.Kind != "Deployment" { // What is left of it has dependents of its own.
				d.add(Step{Action: Replace, Target: o.Name, Delay: d.between(replaceTime, 20*time.Second)})
			}
		}
	}
}

// published is a resource that quota and disruption write, if they run, or that some owner's controller reads.
func (d *draw) published() string {
	if len(d.Budgets) > 0 && d.IntN(2) == 0 {
		return []string{"resourcequotas", "poddisruptionbudgets"}[d.IntN(2)]
	}
	return d.resource()
}

// resource is one that some owner's controller reads.
func (d *draw) resource() string {
	reads := d.owner().Reads()
	return reads[d.IntN(len(reads))]
}

// queue has more DaemonSets change than there are workers, each of whose writes are slow, while nodes change.
func (d *draw) queue() {
	start, length := d.between(20*time.Second, time.Minute), d.between(90*time.Second, 3*time.Minute)
	for i, n := 0, 3+d.IntN(4); i < n; i++ {
		o := Owner{Kind: "DaemonSet", Name: fmt.Sprintf("daemonsets-queue-%d", i)}
		d.Owners = append(d.Owners, o)
		for at := start; at < start+length; at += d.between(time.Second, 30*time.Second) {
			step := Step{At: at, Action: Roll, Target: o.Name}
			if d.IntN(3) == 0 {
				step.Action, step.For = Flip, d.between(time.Second, time.Minute)
			}
			d.Steps = append(d.Steps, step)
		}
	}
	d.Steps = append(d.Steps,
		Step{At: start, Action: SlowWrites, Target: "daemonsets", Delay: d.often(2*time.Second, 10*time.Second), For: length},
		Step{At: start, Action: SlowReads, Target: "nodes", Delay: d.often(100*time.Millisecond, time.Second), For: length},
		Step{At: start, Action: Busy, Target: "nodes", N: 1 + d.IntN(20), For: length})
}

// unwanted has pods run where DaemonSets do not want them any more, while the queue is slow and nodes change all the
// time: the reconcile that would delete them always comes late, and with a view that is older than the server.
func (d *draw) unwanted() {
	start, length := d.between(20*time.Second, time.Minute), d.between(2*time.Minute, 210*time.Second)
	for i, n := 0, 5+d.IntN(3); i < n; i++ {
		o := Owner{Kind: "DaemonSet", Name: fmt.Sprintf("daemonsets-queue-%d", i)}
		d.Owners = append(d.Owners, o)
		for range 3 {
			d.Steps = append(d.Steps, Step{At: start, Action: Flap, Target: o.Name, Delay: d.between(2*time.Second, 5*time.Second), For: length})
		}
	}
	for i := range 1 + d.IntN(3) {
		step := Step{At: start + d.between(5*time.Second, length/3), Action: Relabel, Target: fmt.Sprint("daemonsets-queue-", i), N: d.IntN(d.Nodes)}
		if d.IntN(3) == 0 {
			step.For = length / 2
		}
		d.Steps = append(d.Steps, step)
	}
	d.Steps = append(d.Steps,
		Step{At: start, Action: SlowWrites, Target: "daemonsets", Delay: d.between(3*time.Second, 7*time.Second), For: length},
		Step{At: start, Action: SlowReads, Target: "nodes", Delay: d.often(200*time.Millisecond, time.Second), For: length},
		Step{At: start, Action: Busy, Target: "nodes", N: 5 + d.IntN(15), For: length})
}

// trouble adds a trouble.
func (d *draw) trouble() {
	switch d.IntN(13) {
	case 0, 1:
		d.refusal(Refuse)
	case 2, 3:
		d.refusal(Webhook)
	case 4, 5:
		d.add(Step{Action: Broken, Target: "widgets", N: 1 + d.IntN(30), For: d.often(30*time.Second, 5*time.Minute)})
	case 6:
		d.add(Step{Action: SlowWrites, Target: d.resource(), Delay: d.often(2*time.Second, 30*time.Second), For: d.often(30*time.Second, 5*time.Minute)})
	case 7:
		d.add(Step{Action: SlowReads, Target: d.resource(), Delay: d.often(100*time.Millisecond, 30*time.Second), For: d.often(30*time.Second, 3*time.Minute)})
	case 8:
		d.add(Step{Action: LostAnswer, Target: d.resource(), For: d.often(5*time.Second, time.Minute)})
	case 9:
		d.add(Step{Action: Hold, Target: d.resource(), For: d.often(2*time.Second, time.Minute)})
	case 10:
		d.add(Step{Action: Expire, Target: d.resource()})
	case 11:
		far := d.often(30*time.Second, 15*time.Minute)
		if d.IntN(3) > 0 {
			far = -far
		}
		d.add(Step{Action: Clock, N: d.IntN(d.Nodes), Delay: far})
	case 12:
		// Without the monitor nobody finds out.
		if d.Monitor {
			d.add(Step{Action: LoseEvent, Target: d.resource(), For: d.often(time.Second, 20*time.Second)})
		}
	}
}

// refusal keeps an owner from making pods, and has it need one.
func (d *draw) refusal(action Action) {
	o := d.owner()
	d.add(Step{Action: action, Target: o.Name, For: d.often(20*time.Second, 10*time.Minute)})
	last := d.Steps[len(d.Steps)-1]
	d.Steps = append(d.Steps, Step{At: last.At + d.between(0, last.For/2), Action: DeletePod, Target: o.Name, N: d.IntN(5)})
}

// work adds everyday work.
func (d *draw) work() {
	o := d.owner()
	switch d.IntN(9) {
	case 0:
		d.add(Step{Action: Scale, Target: o.Name, N: d.IntN(6)})
	case 1, 2:
		d.add(Step{Action: Roll, Target: o.Name})
	case 3:
		d.add(Step{Action: Flip, Target: o.Name, For: d.often(100*time.Millisecond, 5*time.Second)})
	case 4, 5:
		for range 1 + d.IntN(5) {
			d.add(Step{Action: Unready, Target: o.Name, N: d.IntN(5), For: d.often(time.Second, 20*time.Second)})
		}
	case 6:
		d.add(Step{Action: DeletePod, Target: o.Name, N: d.IntN(5)})
	case 7:
		d.add(Step{Action: Taint, N: d.IntN(d.Nodes), For: d.often(time.Second, 30*time.Second)})
	case 8:
		d.add(Step{Action: Busy, Target: []string{"nodes", "widgets"}[d.IntN(2)], N: 1 + d.IntN(5), For: d.often(10*time.Second, 3*time.Minute)})
	}
}

// touches says how much longer an owner may take that reads and writes the resource, while the step lasts.
func (s Step) touches(resource string) time.Duration {
	if s.Target != resource {
		return 0
	}
	switch s.Action {
	case SlowWrites, SlowReads, Late:
		return 3 * s.Delay
	case LostAnswer:
		return 10 * time.Second
	case Hold, Lag, Broken, FailWrites, Flaky:
		return s.For
	case Throttle:
		return s.For + 2*time.Duration(s.N)*time.Second // A client tries again that long after it.
	case Expire:
		return time.Second
	case LoseEvent:
		return s.For + time.Minute
	}
	return 0
}

// Ahead is how far the clock of a node may be ahead at the most, by which the owner's pods there are available late; 0 if they are available when they are ready.
func (s Schedule) Ahead(o Owner) (most time.Duration) {
	for _, step := range s.Steps {
		if step.Action == Clock && o.MinReady > 0 {
			most += max(step.Delay, 0)
		}
	}
	return most
}

// Touched is for how long faults disturb an owner, at the most; 0 for a healthy one.
func (s Schedule) Touched(o Owner) time.Duration {
	sum := s.touchedOrUnprovable(o.Reads()) + s.Ahead(o)
	if o.Namespace != "" {
		sum += 10 * time.Second // A quota may refuse its pods, and chance decides when it is tried again.
	}
	for _, step := range s.Steps {
		if step.Target != o.Name {
			continue
		}
		switch step.Action {
		case Refuse, Webhook:
			sum += step.For
		case Ending:
			sum += step.For + controller.ExpectationsTimeout
		case Unlabel:
			if o.Kind == "StatefulSet" {
				sum += step.For // The name of the pod that it needs is taken.
			}
		}
	}
	return sum
}

// touched is for how long faults disturb who reads and writes the resources.
func (s Schedule) touched(resources []string) (sum time.Duration) {
	if s.QPS > 0 {
		sum += 10 * time.Second // Chance decides whose requests wait.
	}
	for _, step := range s.Steps {
		switch step.Action {
		case NodeGone, OutOfService, KillNode:
			sum += 20 * time.Second // Chance decides which pass over the nodes, or over the pods, sees it first.
		case Restart:
			sum += time.Minute // Controllers wait no longer for their caches to be proven.
		case Down:
			sum += step.For + reflectorBackoff
		}
		for _, resource := range resources {
			sum += step.touches(resource)
		}
	}
	return sum
}

// touchedOrUnprovable is touched, and for how long nothing can be proven.
func (s Schedule) touchedOrUnprovable(resources []string) time.Duration {
	sum := s.touched(resources)
	for _, step := range s.Steps {
		if step.Action == Unprovable {
			sum += step.For
		}
	}
	return sum
}

// troubleOf draws a fault of one of the resources, or one in which nothing can be proven.
func (d *draw) troubleOf(resources []string) {
	on := resources[d.IntN(len(resources))]
	switch n := d.IntN(9); n {
	case 0, 1, 2, 3, 4, 5:
		d.disturb(max(n-1, 0), on, 80*time.Second, 10*time.Second, 2*time.Minute)
	case 6, 7:
		d.add(Step{Action: []Action{Throttle, Broken}[d.IntN(2)], Target: on, N: 1 + d.IntN(20), For: d.often(5*time.Second, time.Minute)})
	case 8:
		d.add(Step{Action: Unprovable, For: d.often(10*time.Second, 2*time.Minute)})
	}
}

// lostFor is how much longer a cache that has lost an event may be found stale: until the resource stands still a second time.
const lostFor = 2 * time.Minute

// TouchedAt says that a fault disturbs a resource, or did so less than settle before.
func (s Schedule) TouchedAt(resource string, at, settle time.Duration) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		d := step.touches(resource)
		switch {
		case step.Action == LoseEvent && d > 0:
			d += lostFor
		case step.Action == Unprovable:
			d = lostFor // Proofs are asked for more and more seldom meanwhile.
		case step.Action == Down:
			d = 2 * reflectorBackoff // Before it watches, and, if that has expired, before it lists.
		}
		return d > 0 && at >= step.At && at <= step.At+step.For+d+settle
	})
}
