// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// moreWithheld is by how much longer a value may be withheld on average if no fault touches what it depends on.
const moreWithheld = 300 * time.Millisecond

// foundLost is after how long the monitor has found that the cache of pods lacks an event: once the pods stand still for the second time. Which event is lost is chance.
const foundLost = 3 * time.Minute

// podGCQuarantine is for how long podgc has to see that a node is gone (quarantineTime of upstream's pkg/controller/podgc/gc_controller.go).
const podGCQuarantine = 40 * time.Second

// compareValues says where ours publishes values later than stock, or asks more of the server for them.
func compareValues(s schedule.Schedule, stock, ours Record) []Violation {
	var out []Violation
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	for _, v := range s.Values() {
		if stock.Robbed[v.Namespace] {
			continue
		}
		fault := s.TouchedValue(v)
		owner := ValueOwner(v)
		for what, n := range ours.Requests[owner] {
			more := stock.Requests[owner][what]*5/4 + moreRequests
			if fault > 0 {
				more += stock.Requests[owner][what] // What waits is published by itself, after the rest.
				// It may be due when writes fail, and stock's published before. Disruption tries a status twice.
				more += 2 * (doublings(s, schedule.FailWrites, "poddisruptionbudgets", queues.first) + doublings(s, schedule.FailWrites, "resourcequotas", queues.first))
			}
			if v.Kind == schedule.PodGCValue && s.HasFor(schedule.FailWrites, "pods") {
				more += passesThatFail(s) // Chance decides whether a pod has been evicted before its writes fail.
			}
			if v.Kind == schedule.PodGCValue && s.PutsOff("pods") {
				more += allPods(s) * putOffTries(s, "pods") // So it does of one that the server puts off.
			}
			if v.Kind == schedule.PodGCValue && s.HasFor(schedule.Hold, "pods") {
				more += podsOutOfService(s) // The cache of one arm may show those pods at a pass at which the other's is held.
			}
			if v.Kind == schedule.PodGCValue {
				more += podsOfNodesBack(s)
			}
			if n > more && !onlyOurNodeIsOut(s, v, stock, ours) {
				add("requests", "%s: %d times %s, stock %d", owner, n, what, stock.Requests[owner][what])
			}
		}
		for _, c := range []struct {
			rule        string
			ours, stock []Span
		}{{"withheld", ours.Withheld[v], stock.Withheld[v]}, {"overdone", ours.Overdone[v], stock.Overdone[v]}} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, open := sum(c.stock)
			limit := moreMost
			if v.Kind == schedule.PodGCValue {
				limit += arms.PodGCPeriod // What has just missed a pass waits for the next.
			}
			if fault > 0 {
				limit = fault + afterFault
			}
			if v.Kind == schedule.QuotaValue {
				limit += 2 * s.Lasts(schedule.FailWrites, "resourcequotas") // By then the queue's delay is as long, and longer by events.
			}
			if s.HasFor(schedule.LoseEvent, "pods") {
				limit += foundLost
			}
			switch {
			case c.rule == "withheld" && stock.Room[v.Namespace] && s.HasFor(schedule.FailWrites, "resourcequotas"): // Stock had let it fall too far before it could not be written.
			case ourOpen && !open && ourMost > most+limit:
				add("end", "%s: %s not ended for the last %s, stock's is", v, c.rule, c.ours[len(c.ours)-1].For)
			case open:
			case fault > 0 && ourAll > all*5/4+limit, v.Kind == schedule.PodGCValue && ourAll > all*5/4+limit:
				add(c.rule, "%s: %s in %d times, stock %s in %d", v, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0 || v.Kind == schedule.PodGCValue:
			case ourMean > mean+moreWithheld && ourAll > all+moreWithheld:
				add(c.rule, "%s: mean %s of %d, stock %s of %d", v, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+limit:
				add(c.rule, "%s: most %s, stock %s", v, ourMost, most)
			}
		}
	}
	return out
}

// ValueOwner is the object by which the requests for a value are counted.
func ValueOwner(v schedule.Value) model.Owner {
	if v.Kind == schedule.PodGCValue {
		return podGCOwner
	}
	owner := model.Owner{Kind: v.Kind}
	owner.Namespace, owner.Name = v.Namespace, v.Name
	return owner
}

// onlyOurNodeIsOut says that podgc has pods to delete on our arm alone: the fault began between the two arms' marks of the node, and stock's failed.
func onlyOurNodeIsOut(s schedule.Schedule, v schedule.Value, stock, ours Record) bool {
	out := schedule.Value{Kind: schedule.PodGCValue, Of: "on nodes out of service"}
	return v.Kind == schedule.PodGCValue && s.HasFor(schedule.FailWrites, "nodes") && len(stock.Withheld[out]) == 0 && len(ours.Withheld[out]) > 0
}

// podsOutOfService is how many pods may be on the nodes that are out of service.
func podsOutOfService(s schedule.Schedule) (pods int) {
	for _, step := range s.Steps {
		if step.Action == schedule.OutOfService {
			pods += allPods(s) / s.Nodes
		}
	}
	return pods
}

// podsOfNodesBack is how many pods may be on nodes that come back when podgc has just seen for long enough that they are gone, or is about to: chance decides whether it deletes these pods.
func podsOfNodesBack(s schedule.Schedule) (pods int) {
	for _, step := range s.Steps {
		if step.Action == schedule.NodeGone && step.For >= podGCQuarantine && step.For < podGCQuarantine+2*arms.PodGCPeriod {
			pods += allPods(s) / s.Nodes
		}
	}
	return pods
}

// allPods is how many pods all owners may have.
func allPods(s schedule.Schedule) (pods int) {
	for _, o := range s.Owners {
		pods += max(o.Replicas, s.Nodes)
	}
	return pods
}

// passesThatFail is how many requests podgc may have made in passes in which no pod could be written: one for each pod on a node that is out of service.
func passesThatFail(s schedule.Schedule) int {
	return allPods(s) * int(s.Lasts(schedule.FailWrites, "pods")/arms.PodGCPeriod)
}
