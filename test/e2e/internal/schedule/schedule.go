// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule makes random schedules of faults over a churning workload, and makes one that fails
// shorter. A schedule follows from its seed alone, and every part of it is a valid schedule: a step that
// has nothing to act on does nothing.
package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// Action is what a step does.
type Action string

// The actions, and the fields of Step that each reads.
const (
	CreateDaemonSet   Action = "create-daemonset"   // Name, Count is maxUnavailable
	UpdateDaemonSet   Action = "update-daemonset"   // Name, Count numbers the template
	DeleteDaemonSet   Action = "delete-daemonset"   // Name
	CreateDeployment  Action = "create-deployment"  // Name, Count replicas
	ScaleDeployment   Action = "scale-deployment"   // Name, Count replicas
	UpdateDeployment  Action = "update-deployment"  // Name, Count numbers the template
	CreateStatefulSet Action = "create-statefulset" // Name, Count replicas
	ScaleStatefulSet  Action = "scale-statefulset"  // Name, Count replicas
	UpdateStatefulSet Action = "update-statefulset" // Name, Count numbers the template
	JoinNodes         Action = "join-nodes"         // Count
	DrainNode         Action = "drain-node"         // Count numbers the node
	KillNode          Action = "kill-node"          // Count numbers the node
	ReviveNode        Action = "revive-node"        // Count numbers the node
	RestartKCM        Action = "restart-kcm"
	Fault             Action = "fault" // Resource, Effect, For
)

// Effect is a fault on the watches and lists of one resource, or on what is written to it.
type Effect string

// The effects, by the names that the fault proxy has for them; PutOff is its TooManyRequests for writes.
const (
	Hold              Effect = "hold"
	Delay             Effect = "delay"
	StopReading       Effect = "stop-reading"
	DropStream        Effect = "drop-stream"
	SuppressBookmarks Effect = "suppress-bookmarks"
	Gone              Effect = "gone"
	TooManyRequests   Effect = "too-many-requests"
	TooLargeRV        Effect = "too-large-rv"
	PutOff            Effect = "put-off"      // of writes, which are answered with 429 and Retry-After
	LoseAnswers       Effect = "lose-answers" // of writes that were made
)

// Step is one thing that happens.
type Step struct {
	// At is when, after the start.
	At       time.Duration
	Action   Action
	Name     string        `json:",omitempty"`
	Count    int           `json:",omitempty"`
	Resource string        `json:",omitempty"` // resource.group
	Effect   Effect        `json:",omitempty"`
	For      time.Duration `json:",omitempty"`
}

// String is for logs.
func (s Step) String() string {
	text := fmt.Sprintf("%5.1fs %s", s.At.Seconds(), s.Action)
	if s.Name != "" {
		text += " " + s.Name
	}
	if s.Count != 0 {
		text += fmt.Sprintf(" %d", s.Count)
	}
	if s.Action == Fault {
		text += fmt.Sprintf(" %s %s for %.1fs", s.Effect, s.Resource, s.For.Seconds())
	}
	return text
}

// Schedule is a run's steps, in the order of their times.
type Schedule struct {
	// Seed is what it was made from; a shortened one keeps it.
	Seed uint64
	// Nodes at the start.
	Nodes int
	Steps []Step
}

// Resources are those that faults are injected on.
var Resources = []string{"pods", "nodes", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "controllerrevisions.apps", "leases.coordination.k8s.io"}

const (
	nodes       = 15
	names       = 3
	maxReplicas = 40
	// maxOrdered bounds the replicas of StatefulSets, whose pods come one after the other.
	maxOrdered = 8
	// interval is the mean time between steps.
	interval = 1500 * time.Millisecond
	minFault = time.Second
	maxFault = 25 * time.Second
)

var effects = []Effect{Hold, Hold, Delay, Delay, StopReading, DropStream, SuppressBookmarks, Gone, TooManyRequests, TooLargeRV}

// writeEffects are the faults of writes, and written what they are injected on: not on leases, of which the leader's is one, nor on nodes, whose marks would be late.
var (
	written      = []string{"pods", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "controllerrevisions.apps"}
	writeEffects = []Effect{PutOff, LoseAnswers}
)

// mostOnWrites is how many faults of writes a schedule has at most.
const mostOnWrites = 4

// churn are the actions besides faults, as often as they are to come.
var churn = []Action{
	CreateDaemonSet, UpdateDaemonSet, UpdateDaemonSet, UpdateDaemonSet, DeleteDaemonSet, CreateDeployment, ScaleDeployment, ScaleDeployment, UpdateDeployment,
	CreateStatefulSet, ScaleStatefulSet, ScaleStatefulSet, UpdateStatefulSet, JoinNodes, DrainNode, KillNode, ReviveNode, RestartKCM,
}

// Random makes the schedule of a seed, this long.
func Random(seed uint64, length time.Duration) Schedule {
	random := rand.New(rand.NewPCG(seed, 0))
	s := Schedule{Seed: seed, Nodes: nodes}
	for i := range names {
		s.Steps = append(s.Steps, Step{Action: CreateDaemonSet, Name: name(CreateDaemonSet, i), Count: 1 + random.IntN(nodes/2)})
	}
	s.Steps = append(s.Steps, Step{Action: CreateDeployment, Name: name(CreateDeployment, 0), Count: 1 + random.IntN(maxReplicas)})
	for at := between(random, 0, 2*interval); at < length; at += between(random, 0, 2*interval) {
		step := Step{At: at.Truncate(time.Millisecond)}
		if random.IntN(3) == 0 {
			step.Action = Fault
			step.Resource = Resources[random.IntN(len(Resources))]
			step.Effect = effects[random.IntN(len(effects))]
			step.For = between(random, minFault, maxFault).Truncate(time.Millisecond)
		} else {
			step.Action = churn[random.IntN(len(churn))]
			step.Name, step.Count = name(step.Action, random.IntN(names)), count(step.Action, random)
		}
		s.Steps = append(s.Steps, step)
	}
	random = rand.New(rand.NewPCG(seed, 1)) // The rest of a schedule stays as it is.
	for range random.IntN(mostOnWrites + 1) {
		s.Steps = append(s.Steps, Step{
			At: between(random, 0, length).Truncate(time.Millisecond), Action: Fault, Resource: written[random.IntN(len(written))], Effect: writeEffects[random.IntN(len(writeEffects))],
			For: between(random, minFault, maxFault).Truncate(time.Millisecond),
		})
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s
}

func name(action Action, number int) string {
	switch action {
	case CreateDaemonSet, UpdateDaemonSet, DeleteDaemonSet:
		return fmt.Sprintf("set-%d", number)
	case CreateDeployment, ScaleDeployment, UpdateDeployment:
		return fmt.Sprintf("deployment-%d", number)
	case CreateStatefulSet, ScaleStatefulSet, UpdateStatefulSet:
		return fmt.Sprintf("ordered-%d", number)
	}
	return ""
}

func count(action Action, random *rand.Rand) int {
	switch action {
	case CreateDaemonSet, JoinNodes:
		return 1 + random.IntN(3)
	case UpdateDaemonSet, UpdateDeployment, UpdateStatefulSet:
		return random.IntN(1 << 20)
	case CreateStatefulSet, ScaleStatefulSet:
		return random.IntN(maxOrdered)
	case CreateDeployment, ScaleDeployment:
		return random.IntN(maxReplicas)
	case DrainNode, KillNode, ReviveNode:
		return random.IntN(nodes)
	}
	return 0
}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

// End is when the last step, and the last fault, is over.
func (s Schedule) End() time.Duration {
	var end time.Duration
	for _, step := range s.Steps {
		end = max(end, step.At+step.For)
	}
	return end
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
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing a schedule: %w", err)
	}
	return nil
}

// Shrink looks for a shorter schedule that still fails, by leaving out parts of it: halves first, then ever
// smaller ones (delta debugging). fails is called at most budget times. The schedule itself must fail.
func (s Schedule) Shrink(budget int, fails func(Schedule) bool) Schedule {
	for size := (len(s.Steps) + 1) / 2; size > 0 && budget > 0; {
		shorter, found := s, false
		for first := 0; first < len(s.Steps) && budget > 0; first += size {
			candidate := s
			candidate.Steps = slices.Delete(slices.Clone(s.Steps), first, min(first+size, len(s.Steps)))
			budget--
			if fails(candidate) {
				shorter, found = candidate, true
				break
			}
		}
		switch {
		case found:
			s = shorter
			size = min(size, (len(s.Steps)+1)/2)
		case size == 1:
			return s
		default:
			size = (size + 1) / 2
		}
	}
	return s
}
