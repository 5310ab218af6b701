// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Work on tenants, whose name is Target, and on what podgc and budgets look at.
const (
	Fill         Action = "fill"           // its user makes those of the first N pods that are not there, and an object that is counted
	Keep         Action = "keep"           // all but the first N of the pods at the start are deleted at once
	Empty        Action = "empty"          // the first N pods are deleted, and the object
	EndPods      Action = "end-pods"       // the first N pods end
	Remake       Action = "remake"         // the first N pods are deleted at once and made again under their names
	SetHard      Action = "set-hard"       // the quota allows N pods
	SetMin       Action = "set-min"        // the budget over Target wants N pods available
	Drain        Action = "drain"          // somebody tries five times a second, for For, to evict up to N pods of the owner or tenant
	NodeGone     Action = "node-gone"      // the Nth node is deleted, and comes back after For
	OutOfService Action = "out-of-service" // the Nth node is dead for For, and somebody says so after Delay
)

// Tenant is a namespace with a quota, whose user makes pods without an owner.
type Tenant struct {
	Name string
	// Pods are those of its user at the start, Hard is how many pods its quota allows.
	Pods, Hard int
}

// Budget is one over the pods of an owner or a tenant.
type Budget struct {
	Over string
	// MaxUnavailable, unless 0, is counted by the owner's scale; otherwise MinAvailable pods have to stay.
	MaxUnavailable, MinAvailable int `json:",omitempty"`
}

// Guards says that podgc, quota and disruption run.
func (s Schedule) Guards() bool { return s.Ended > 0 || len(s.Tenants) > 0 || len(s.Budgets) > 0 }

// guards has every second seed have a tenant, budgets and a threshold of ended pods.
func (d *draw) guards() {
	if d.oneIn(2, 1) {
		return
	}
	d.Ended = 1 + d.IntN(5)
	tenant := Tenant{Name: "tenant", Pods: 2 + d.IntN(5)}
	tenant.Hard = tenant.Pods + d.IntN(3)
	minAvailable := 1 + d.IntN(tenant.Pods)
	d.Budgets = append(d.Budgets, Budget{Over: tenant.Name, MinAvailable: minAvailable})
	for i, o := range d.Owners {
		if !scales(o.Kind) || d.IntN(3) == 0 {
			continue
		}
		d.Budgets = append(d.Budgets, Budget{Over: o.Name, MaxUnavailable: 1 + d.IntN(2)})
		if o.Kind == "ReplicaSet" && d.IntN(3) == 0 {
			d.Owners[i].Namespace = tenant.Name
			tenant.Hard += o.Replicas + d.IntN(2)
		}
	}
	d.Tenants = []Tenant{tenant}
	d.endAndRemake(tenant)
	for range 2 + d.IntN(6) {
		d.guardedWork(tenant, minAvailable)
	}
	for range d.IntN(3) {
		d.guardedTrouble()
	}
}

// scales says that budgets count by the scale of owners of the kind without asking the server.
func scales(kind string) bool {
	return kind == "ReplicaSet" || kind == "StatefulSet" || kind == "ReplicationController"
}

// guardedWork adds work that concerns a quota, a budget or podgc.
func (d *draw) guardedWork(tenant Tenant, minAvailable int) {
	switch d.IntN(10) {
	case 0, 1:
		d.add(Step{Action: Fill, Target: tenant.Name, N: tenant.Pods + d.IntN(4)})
	case 2:
		d.add(Step{Action: Empty, Target: tenant.Name, N: 1 + d.IntN(tenant.Pods)})
	case 3:
		d.add(Step{Action: EndPods, Target: tenant.Name, N: 1 + d.IntN(tenant.Pods)})
	case 4:
		d.endAndRemake(tenant)
	case 5:
		d.add(Step{Action: SetHard, Target: tenant.Name, N: max(1, tenant.Hard+d.IntN(5)-2)})
	case 6:
		d.add(Step{Action: SetMin, Target: tenant.Name, N: max(1, minAvailable+d.IntN(3)-1)})
	case 7, 8:
		d.add(Step{Action: Drain, Target: d.Budgets[d.IntN(len(d.Budgets))].Over, N: 1 + d.IntN(5), For: d.often(2*time.Second, 30*time.Second)})
	case 9:
		switch d.IntN(4) {
		case 0:
			d.add(Step{Action: NodeGone, N: d.IntN(d.Nodes), For: d.between(90*time.Second, 3*time.Minute)})
		case 1:
			d.add(Step{Action: OutOfService, N: d.IntN(d.Nodes), Delay: d.between(time.Minute, 90*time.Second), For: d.between(100*time.Second, 3*time.Minute)})
		}
	}
}

// endAndRemake has more pods end than are kept, and come back under their names, or go, perhaps while their watch is held or podgc
// deletes some.
func (d *draw) endAndRemake(tenant Tenant) {
	d.add(Step{Action: EndPods, Target: tenant.Name, N: tenant.Pods})
	ended := d.Steps[len(d.Steps)-1].At
	remade := Step{At: ended + d.between(2*time.Second, 10*time.Second), Action: Remake, Target: tenant.Name, N: tenant.Pods}
	switch length := d.between(20*time.Second, time.Minute); d.IntN(3) {
	case 0:
		d.Steps = append(d.Steps, Step{At: ended + time.Second, Action: Hold, Target: "pods", For: length})
	case 1:
		d.Steps = append(d.Steps, Step{At: ended + time.Second, Action: Hold, Target: "pods", For: length})
		remade.Action, remade.N = Keep, 1
	case 2:
		// The pass goes on meanwhile.
		d.Steps = append(d.Steps, Step{At: ended - time.Second, Action: SlowWrites, Target: "pods", Delay: d.between(3*time.Second, 8*time.Second), For: 40 * time.Second})
		remade.At += 6 * time.Second
	}
	d.Steps = append(d.Steps, remade)
}

// guardedTrouble adds a fault of a resource that quota, disruption or podgc reads, while there is work for it.
func (d *draw) guardedTrouble() {
	resource := []string{"pods", "pods", "pods", "resourcequotas", "poddisruptionbudgets", "replicasets", "statefulsets", "widgets"}[d.IntN(8)]
	switch d.IntN(5) {
	case 0:
		d.add(Step{Action: SlowReads, Target: resource, Delay: d.often(100*time.Millisecond, 10*time.Second), For: d.often(10*time.Second, time.Minute)})
	case 1:
		d.add(Step{Action: Expire, Target: resource})
	default:
		d.add(Step{Action: Hold, Target: resource, For: d.often(5*time.Second, time.Minute)})
		hold := d.Steps[len(d.Steps)-1]
		tenant := d.Tenants[0]
		inside := func(s Step) {
			s.At, s.Target = hold.At+d.between(time.Second, hold.For), tenant.Name
			d.Steps = append(d.Steps, s)
		}
		inside(Step{Action: Empty, N: tenant.Pods})
		inside(Step{Action: Fill, N: tenant.Pods + 3})
		inside(Step{Action: SetHard, N: tenant.Hard + 1})
		inside(Step{Action: SetMin, N: 1})
	}
}

// Value is something that a controller publishes: of a quota, of a budget, or, of podgc, what it leaves behind.
type Value struct {
	Kind, Namespace, Name, Of string
}

func (v Value) String() string { return fmt.Sprintf("%s %s/%s %s", v.Kind, v.Namespace, v.Name, v.Of) }

// Kinds of values.
const (
	QuotaValue  = "ResourceQuota"
	BudgetValue = "PodDisruptionBudget"
	PodGCValue  = "PodGC"
)

// WidgetCount is how a quota counts custom resources.
const WidgetCount = "count/widgets.example.com"

// Values are those of the schedule.
func (s Schedule) Values() []Value {
	var out []Value
	for _, tenant := range s.Tenants {
		for _, of := range []string{"pods", "count/pods", WidgetCount} {
			out = append(out, Value{QuotaValue, tenant.Name, tenant.Name, of})
		}
	}
	for _, b := range s.Budgets {
		out = append(out, Value{BudgetValue, s.namespaceOf(b.Over), b.Over, ""})
	}
	if s.Ended > 0 {
		out = append(out, Value{Kind: PodGCValue, Of: "ended"}, Value{Kind: PodGCValue, Of: "on nodes that are gone"}, Value{Kind: PodGCValue, Of: "on nodes out of service"})
	}
	return out
}

// namespaceOf is where the pods of an owner or tenant are.
func (s Schedule) namespaceOf(name string) string {
	if slices.ContainsFunc(s.Tenants, func(t Tenant) bool { return t.Name == name }) {
		return name
	}
	for _, o := range s.Owners {
		if o.Name == name && o.Namespace != "" {
			return o.Namespace
		}
	}
	return "default"
}

// reads are the resources that a value depends on.
func (s Schedule) reads(v Value) []string {
	switch {
	case v.Kind == QuotaValue && v.Of == WidgetCount:
		return []string{"widgets", "resourcequotas"}
	case v.Kind == QuotaValue:
		return []string{"pods", "resourcequotas"}
	case v.Kind == PodGCValue:
		return []string{"pods", "nodes"}
	}
	reads := []string{"pods", "poddisruptionbudgets"}
	for _, o := range s.Owners {
		if o.Name == v.Name {
			reads = append(reads, resourceOf[o.Kind])
		}
	}
	return reads
}

// TouchedValue is for how long faults disturb what a value depends on, at the most.
func (s Schedule) TouchedValue(v Value) time.Duration { return s.touchedOrUnprovable(s.reads(v)) }
