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

// What others do to the family Target.
const (
	RemoveOwner     Action = "remove-owner"          // its owner is deleted as Policies[N] says, and made again with new dependents Delay after it is gone
	AddDependent    Action = "add-dependent"         // a dependent of the kind Plain[N] is made
	DropDependent   Action = "drop-dependent"        // its Nth dependent is deleted
	RemakeDependent Action = "remake-dependent"      // its Nth dependent is deleted and made again under its name at once
	Release         Action = "release"               // its Nth dependent loses its owners
	Adopt           Action = "adopt"                 // its Nth object without an owner gets one
	Join            Action = "join"                  // its Nth dependent gets the owner of the family after it besides
	Move            Action = "move"                  // its Nth dependent gets the owner of the family after it in place of its own
	Block           Action = "block"                 // its Nth dependent blocks a foreground deletion from then on, or, if it did, does not
	OfTheGone       Action = "dependent-of-the-gone" // a dependent of the owner before this one is made, of the kind Plain[N]
)

// Policies are what becomes of dependents.
var Policies = []string{"Background", "Foreground", "Orphan"}

// Plain are the kinds of dependents that no controller makes.
var Plain = []string{"ConfigMap", "Widget"}

// Family is an owner with its dependents.
type Family struct {
	// Kind and Name are the owner's. Replicas is for one that has pods.
	Kind, Name string
	Replicas   int `json:",omitempty"`
	// ConfigMaps and Widgets are how many dependents it has at the start of these kinds. Blocking says that they block a foreground
	// deletion, Chained that each ConfigMap owns a widget itself.
	ConfigMaps, Widgets int  `json:",omitempty"`
	Blocking, Chained   bool `json:",omitempty"`
}

// familyResources are the resources of owners and dependents, by the owner's kind.
var familyResources = map[string][]string{
	"ConfigMap": nil, "Widget": nil, "ReplicaSet": {"replicasets", "pods"}, "ReplicationController": {"replicationcontrollers", "pods"},
	"StatefulSet": {"statefulsets", "pods", "controllerrevisions"}, "Deployment": {"deployments", "replicasets", "pods"}, "Job": {"jobs", "pods"},
}

// Resources are those of the family's owner and dependents.
func (f Family) Resources() []string {
	return append(slices.Clone(familyResources[f.Kind]), "configmaps", "widgets")
}

// DrawCollections makes a schedule of owners and dependents from a seed, which the garbage collector looks after.
func DrawCollections(seed uint64) Schedule {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 6)), Schedule: Schedule{Seed: seed, Nodes: 2, Settle: 3 * time.Minute}}
	d.Monitor = d.IntN(3) > 0
	d.length = d.between(2*time.Minute, 6*time.Minute)
	if d.IntN(12) == 0 {
		d.QPS = 5 + d.IntN(10)
	}
	kinds := []string{"ConfigMap", "ConfigMap", "Widget", "Widget", "ReplicaSet", "ReplicaSet", "ReplicationController", "StatefulSet", "Deployment", "Job"}
	for i := range 1 + d.IntN(4) {
		d.Families = append(d.Families, Family{Kind: kinds[d.IntN(len(kinds))], Name: fmt.Sprint("family-", i), Replicas: 1 + d.IntN(4),
			ConfigMaps: d.IntN(4), Widgets: d.IntN(4), Blocking: d.IntN(2) == 0, Chained: d.IntN(3) == 0})
	}
	for _, f := range d.Families {
		for range 1 + d.IntN(3) {
			d.removal(f)
		}
	}
	for range 2 + d.IntN(6) {
		d.foreign(d.Families[d.IntN(len(d.Families))])
	}
	for range d.IntN(4) {
		d.collectorTrouble()
	}
	ofFamily := func() string {
		resources := d.Families[d.IntN(len(d.Families))].Resources()
		return resources[d.IntN(len(resources))]
	}
	d.failing(ofFamily)
	d.unreliable(ofFamily)
	slices.SortStableFunc(d.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.Schedule
}

// removal has a family's owner deleted, perhaps while something of the family is not seen that was made shortly before.
func (d *draw) removal(f Family) {
	d.add(Step{Action: RemoveOwner, Target: f.Name, N: d.IntN(len(Policies))})
	remove := &d.Steps[len(d.Steps)-1]
	if d.IntN(4) > 0 {
		remove.Delay = d.often(100*time.Millisecond, 20*time.Second)
	}
	at := remove.At
	on := f.Resources()[d.IntN(len(f.Resources()))]
	before := d.between(100*time.Millisecond, 10*time.Second)
	switch d.IntN(6) {
	case 0, 1, 2:
		// Under a minute, for which dependents of a custom resource are waited for.
		d.Steps = append(d.Steps, Step{At: at - before, Action: Hold, Target: on, For: d.often(10*time.Second, 50*time.Second)})
	case 3:
		d.Steps = append(d.Steps, Step{At: at - before, Action: []Action{Throttle, SlowReads, SlowWrites}[d.IntN(3)], Target: on, N: 1 + d.IntN(10), Delay: d.often(100*time.Millisecond, 3*time.Second), For: d.often(10*time.Second, time.Minute)})
	case 4:
		d.Steps = append(d.Steps, Step{At: at - before, Action: Expire, Target: on})
	}
	for range d.IntN(3) {
		made := d.between(at-before, at)
		n := d.IntN(len(Plain))
		d.Steps = append(d.Steps, Step{At: made, Action: AddDependent, Target: f.Name, N: n})
		if d.IntN(12) == 0 && d.Monitor {
			// The event that it makes. Without the monitor nobody finds out, and ours waits for 5 min.
			d.Steps = append(d.Steps, Step{At: made - time.Millisecond, Action: LoseEvent, Target: []string{"configmaps", "widgets"}[n], For: 20 * time.Millisecond})
		}
	}
	if scales(f.Kind) && d.IntN(2) == 0 {
		d.Steps = append(d.Steps, Step{At: d.between(at-before, at), Action: Scale, Target: f.Name, N: f.Replicas + 1 + d.IntN(3)})
	}
}

// foreign has others change a family.
func (d *draw) foreign(f Family) {
	actions := []Action{AddDependent, DropDependent, RemakeDependent, Release, Adopt, Join, Join, Move, Block, OfTheGone}
	d.add(Step{Action: actions[d.IntN(len(actions))], Target: f.Name, N: d.IntN(6)})
	if at := d.Steps[len(d.Steps)-1].At; d.IntN(4) == 0 {
		d.Steps = append(d.Steps, Step{At: at - d.between(100*time.Millisecond, 5*time.Second), Action: Hold, Target: []string{"configmaps", "widgets"}[d.IntN(2)], For: d.often(5*time.Second, 50*time.Second)})
	}
}

func (d *draw) collectorTrouble() {
	f := d.Families[d.IntN(len(d.Families))]
	on := f.Resources()[d.IntN(len(f.Resources()))]
	switch n := d.IntN(8); n {
	case 0, 1, 2, 3, 4, 5:
		d.disturb(max(n-1, 0), on, 50*time.Second, 5*time.Second, time.Minute)
	case 6:
		d.add(Step{Action: Throttle, Target: "widgets", N: 1 + d.IntN(10), For: d.often(5*time.Second, time.Minute)})
	case 7:
		d.add(Step{Action: Broken, Target: "widgets", N: 1 + d.IntN(30), For: d.often(10*time.Second, time.Minute)})
	}
}

// TouchedFamily is for how long faults disturb a family, at the most. Its dependents may get the owner of any other.
func (s Schedule) TouchedFamily() time.Duration {
	return s.touched(s.collected())
}

// collected are the resources of all families.
func (s Schedule) collected() (all []string) {
	for _, f := range s.Families {
		for _, r := range f.Resources() {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}

// Provable says that what the graph of the garbage collector lacks is shown by resource versions, and soon: no event is lost, and no
// resource is so slow, or refused for so long, that an owner goes on without its proof.
func (s Schedule) Provable() bool {
	const slow = 3 * time.Second
	resources := s.collected()
	return !slices.ContainsFunc(s.Steps, func(step Step) bool {
		if !slices.Contains(resources, step.Target) {
			return false
		}
		switch step.Action {
		case LoseEvent, Throttle, Broken:
			return true
		case SlowReads:
			return step.Delay > slow
		}
		return false
	})
}
