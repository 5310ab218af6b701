// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule makes random schedules of everyday troubles and faults, and makes one that fails shorter. A
// schedule follows from its seed alone, and any part of one is a schedule too.
package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Action is what a step does.
type Action string

// Everyday work. Target is an owner, but for what is said of nodes.
const (
	Scale     Action = "scale"      // to N replicas
	Roll      Action = "roll"       // a new template
	Flip      Action = "flip"       // the spec is changed, and back after For
	Unready   Action = "unready"    // its Nth pod turns unready for For
	DeletePod Action = "delete-pod" // its Nth pod is deleted by hand
	Taint     Action = "taint"      // the Nth node gets a NoExecute taint for For
	KillNode  Action = "kill-node"  // the Nth node's kubelet stops for For
	Relabel   Action = "relabel"    // the Nth node gets a label that the DaemonSet does not want, for For, or for good
	Flap      Action = "flap"       // one of its pods after the other turns unready, every Delay, for For
	Busy      Action = "busy"       // an object of the resource Target changes N times a second for For
	FailPod   Action = "fail-pod"   // its Nth pod fails, as one that its kubelet evicts
	Unlabel   Action = "unlabel"    // its Nth pod loses the label by which it is selected, for For
	Annotate  Action = "annotate"   // somebody changes an annotation of it N times a second, for For
	Replace   Action = "replace"    // it is deleted, and made again after Delay
	Pause     Action = "pause"      // a Deployment is paused, or a Job suspended, for For
	RollBack  Action = "roll-back"  // the template that it had first
)

// Troubles. Target is an owner for the first three, and a resource for the others, for For.
const (
	Refuse     Action = "refuse"      // creations of the owner's pods are refused with 403
	Ending     Action = "ending"      // creations of the owner's pods are refused with 403, as in a namespace that is being deleted
	Webhook    Action = "webhook"     // creations of the owner's pods fail with 500, after Delay
	FailWrites Action = "fail-writes" // writes fail with the status N, or, if it is 0, with 500, as of an admission webhook that is down
	Flaky      Action = "flaky"       // every Nth write of each owner fails with 500, as of a webhook of which one of N replicas is down
	Down       Action = "down"        // kube-controller-manager does not reach the server: requests fail, and watches end
	TimeOut    Action = "time-out"    // writes are answered with 500, as of an etcd that is too slow, and nobody knows what became of them; with N, they are to be sent again after N seconds
	PutOff     Action = "put-off"     // writes are answered with 429 and Retry-After of N seconds
	Broken     Action = "broken"      // lists and watches are answered with 429 and Retry-After of N seconds
	Throttle   Action = "throttle"    // all requests are answered with 429 and Retry-After of N seconds
	SlowWrites Action = "slow-writes" // writes take Delay before the server sees them
	SlowReads  Action = "slow-reads"  // gets and lists take Delay, half of it before the server sees them
	LostAnswer Action = "lost-answer" // every other write is made and its answer lost
	Hold       Action = "hold"        // watches bring nothing
	Lag        Action = "lag"         // who lists or watches anew is told what there was when it began
	Late       Action = "late"        // watches bring events Delay later, also to proofs
	Expire     Action = "expire"      // watches end with 410
	LoseEvent  Action = "lose-event"  // watches lose one event, if there is one within For
	Unprovable Action = "unprovable"  // proofs of every resource fail, and gets and lists of the resource Target, if it is named
	Clock      Action = "clock"       // the Nth node's clock jumps by Delay
	Restart    Action = "restart"     // kube-controller-manager ends, and another begins
)

// troubles are those of which Later and Longer change the time.
var troubles = []Action{Refuse, Ending, Webhook, FailWrites, Flaky, Down, TimeOut, PutOff, Broken, Throttle, SlowWrites, SlowReads, LostAnswer, Hold, Lag, Late, Expire, LoseEvent, Unprovable, Clock, Restart}

// Work on the Nth object of the resource Target, whose objects keep a finalizer while something uses them.
const (
	MakeProtected   Action = "make-protected"
	DeleteProtected Action = "delete-protected"
)

// Step is one thing that happens.
type Step struct {
	// At is when, after the start; For is for how long.
	At, For time.Duration
	Action  Action
	Target  string        `json:",omitempty"`
	N       int           `json:",omitempty"`
	Delay   time.Duration `json:",omitempty"`
}

func (s Step) String() string {
	text := fmt.Sprintf("%7.1fs %s %s %d", s.At.Seconds(), s.Action, s.Target, s.N)
	if s.Delay != 0 {
		text += fmt.Sprintf(" by %s", s.Delay)
	}
	if s.For != 0 {
		text += fmt.Sprintf(" for %s", s.For)
	}
	return text
}

// Owner is an object that a controller reconciles, with its number of replicas.
type Owner struct {
	Kind, Name string
	Replicas   int
	// Claims says that a StatefulSet's pods each have a volume claim.
	Claims bool `json:",omitempty"`
	// Recreate says that a Deployment recreates.
	Recreate bool `json:",omitempty"`
	// Surge is how many pods too many a DaemonSet makes while it rolls; 0: it deletes first.
	Surge int `json:",omitempty"`
	// MaxUnavailable is how many pods a DaemonSet that does not surge, or a StatefulSet, may lack while it rolls; 0: one. A Deployment may lack so many, and
	// have Surge too many; if both are 0, one.
	MaxUnavailable int `json:",omitempty"`
	// Manual says that the pods of a DaemonSet or StatefulSet get a new template when somebody deletes them, and not before.
	Manual bool `json:",omitempty"`
	// Partition is how many of a StatefulSet's pods, the first ones, keep the template that they have.
	Partition int `json:",omitempty"`
	// DropClaims says that a StatefulSet that is scaled down drops the claims of the pods that go.
	DropClaims bool `json:",omitempty"`
	// Deadline is for how many seconds a Job may run, or a Deployment's rollout stand still; 0: for ever, and 600.
	Deadline int `json:",omitempty"`
	// NoHistory says that nothing is kept of templates that no pod has.
	NoHistory bool `json:",omitempty"`
	// EndFirst says that a Job replaces a pod when it has ended, and not when its deletion begins.
	EndFirst bool `json:",omitempty"`
	// Short says that a Job wants one pod for each replica, and not four.
	Short bool `json:",omitempty"`
	// Parallel says that a StatefulSet's pods do not wait for each other, Indexed that a Job's pods have indexes.
	Parallel, Indexed bool `json:",omitempty"`
	// MinReady is for how many seconds a pod must be ready before it is available. Failures, unless 0, is how many of a Job's pods may fail.
	MinReady, Failures int `json:",omitempty"`
	// Starts is how long its pods take to be ready, and Stops how long to end; 0: as long as most.
	Starts time.Duration `json:",omitempty"`
	Stops  time.Duration `json:",omitempty"`
	// Namespace, unless empty, is where it is in place of the default one.
	Namespace string `json:",omitempty"`
}

// Schedule is one history.
type Schedule struct {
	// Finding says what it found, if it is kept for that.
	Finding string `json:",omitempty"`
	Seed    uint64
	Nodes   int
	Monitor bool
	// QPS, unless 0, is how many requests a second each controller's client may send, in place of the default.
	QPS    int `json:",omitempty"`
	Owners []Owner
	// Ended, unless 0, is how many ended pods podgc leaves.
	Ended   int      `json:",omitempty"`
	Tenants []Tenant `json:",omitempty"`
	Budgets []Budget `json:",omitempty"`
	// CronJobs run each minute.
	CronJobs []CronJob `json:",omitempty"`
	// Services select the pods of owners. LateNodes of the nodes are not there at the start.
	Services  []Service `json:",omitempty"`
	LateNodes int       `json:",omitempty"`
	// Endpoints says that Services have Endpoints, too.
	Endpoints bool `json:",omitempty"`
	// Finalizers says that the controllers run that keep a finalizer on what is used.
	Finalizers bool `json:",omitempty"`
	// Families are what the garbage collector looks after.
	Families []Family `json:",omitempty"`
	// Claimers are pods that claim devices.
	Claimers []Claimer `json:",omitempty"`
	// DeviceTaints says that the controller runs that evicts pods from devices with taints.
	DeviceTaints bool `json:",omitempty"`
	// Autoscalers come with their workloads.
	Autoscalers []Autoscaler `json:",omitempty"`
	// Volumes come each with a pod that uses it.
	Volumes []Volume `json:",omitempty"`
	Steps   []Step
	// Settle is how long the run goes on after the last step is over.
	Settle time.Duration
}

// Later is the history with its troubles so much later.
func (s Schedule) Later(by time.Duration) Schedule {
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		if slices.Contains(troubles, s.Steps[i].Action) {
			s.Steps[i].At += by
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s
}

// Longer is the history with its troubles so many times as long, but for no longer than most.
func (s Schedule) Longer(times int, most time.Duration) Schedule {
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		if slices.Contains(troubles, s.Steps[i].Action) {
			s.Steps[i].For = min(time.Duration(times)*s.Steps[i].For, most)
		}
	}
	return s
}

// End is when the last step is over.
func (s Schedule) End() time.Duration {
	var end time.Duration
	for _, step := range s.Steps {
		end = max(end, step.At+step.For)
	}
	return end
}

func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, monitor %v, %d requests a second (0: by default), settle %s, %+v, %d ended, %+v, %+v, %+v, %+v, %d nodes come later, %+v, %+v, %+v, %+v\n", s.Seed, s.Nodes, s.Monitor, s.QPS, s.Settle, s.Owners, s.Ended, s.Tenants, s.Budgets, s.CronJobs, s.Services, s.LateNodes, s.Families, s.Claimers, s.Autoscalers, s.Volumes)
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}

// Has says that a step of the action is in it.
func (s Schedule) Has(a Action) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Action == a })
}

// HasFor reports whether a step does that to a resource.
func (s Schedule) HasFor(a Action, resource string) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Action == a && step.Target == resource })
}

// PutsOff reports whether a step has writes of a resource answered so that a client sends them again after a while.
func (s Schedule) PutsOff(resource string) bool {
	return s.HasFor(PutOff, resource) || s.HasFor(TimeOut, resource)
}

// Lasts is for how long steps do that to a resource, in all.
func (s Schedule) Lasts(a Action, resource string) (sum time.Duration) {
	for _, step := range s.Steps {
		if step.Action == a && step.Target == resource {
			sum += step.For
		}
	}
	return sum
}

// Evicts says that a step may have pods evicted from a node.
func (s Schedule) Evicts() bool {
	return slices.ContainsFunc([]Action{Taint, OutOfService, NodeGone, KillNode}, s.Has)
}

// Load reads a schedule from a file.
func Load(path string) (Schedule, error) {
	var s Schedule
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading a schedule: %w", err)
	}
	return s, nil
}

// Save writes the schedule to a file that Load reads.
func (s Schedule) Save(path string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing a schedule: %w", err)
	}
	return nil
}

// Shrink looks for a smaller schedule that still fails: fewer steps, then fewer owners, families, claimers, autoscalers and volumes, then shorter steps. The
// schedule itself must fail. fails is called at most budget times.
func (s Schedule) Shrink(budget int, fails func(Schedule) bool) Schedule {
	try := func(candidate Schedule) bool {
		if budget <= 0 {
			return false
		}
		budget--
		if !fails(candidate) {
			return false
		}
		s = candidate
		return true
	}
	for size := (len(s.Steps) + 1) / 2; size > 0; size /= 2 {
		for first := 0; first < len(s.Steps); {
			candidate := s
			candidate.Steps = slices.Delete(slices.Clone(s.Steps), first, min(first+size, len(s.Steps)))
			if !try(candidate) {
				first += size
			}
		}
	}
	for i := 0; i < len(s.Owners); {
		candidate := s
		candidate.Owners = slices.Delete(slices.Clone(s.Owners), i, i+1)
		if !try(candidate) {
			i++
		}
	}
	fewer(&s, try, func(s *Schedule) *[]Family { return &s.Families }, func(f Family) string { return f.Name })
	fewer(&s, try, func(s *Schedule) *[]Claimer { return &s.Claimers }, func(c Claimer) string { return c.Name })
	fewer(&s, try, func(s *Schedule) *[]Autoscaler { return &s.Autoscalers }, func(a Autoscaler) string { return a.Name })
	fewer(&s, try, func(s *Schedule) *[]Volume { return &s.Volumes }, func(v Volume) string { return v.Name })
	for i := range s.Steps {
		for s.Steps[i].For > 2*time.Second {
			candidate := s
			candidate.Steps = slices.Clone(s.Steps)
			candidate.Steps[i].For = (s.Steps[i].For / 2).Truncate(100 * time.Millisecond)
			if !try(candidate) {
				break
			}
		}
	}
	return s
}

// fewer leaves out one after the other of what of returns, with the steps about it, as long as what is left is taken, which changes s.
func fewer[T any](s *Schedule, try func(Schedule) bool, of func(*Schedule) *[]T, name func(T) string) {
	for i := 0; i < len(*of(s)); {
		candidate, gone := *s, name((*of(s))[i])
		*of(&candidate) = slices.Delete(slices.Clone(*of(s)), i, i+1)
		candidate.Steps = slices.DeleteFunc(slices.Clone(s.Steps), func(step Step) bool { return step.Target == gone })
		if !try(candidate) {
			i++
		}
	}
}
