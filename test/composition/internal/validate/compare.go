// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// doublings is how many times something is tried again while a fault of the resource lasts, or delays an event, first after so long and then
// half as often each time.
func doublings(s schedule.Schedule, fault schedule.Action, resource string, first time.Duration) (n int) {
	for _, step := range s.Steps {
		if step.Action != fault || step.Target != resource {
			continue
		}
		for wait := first; wait < cmp.Or(step.Delay, step.For); wait *= 2 {
			n++
		}
	}
	return n
}

// putOffTries is how many times a write is tried that the server puts off.
func putOffTries(s schedule.Schedule, resource string) (n int) {
	for _, step := range s.Steps {
		if (step.Action == schedule.PutOff || step.Action == schedule.TimeOut) && step.Target == resource && step.N > 0 {
			n += 1 + int(step.For/(time.Duration(step.N)*time.Second))
		}
	}
	return n
}

// proofsAreLate says that ours may wait for a proof before it makes a write.
func proofsAreLate(s schedule.Schedule) bool {
	return slices.ContainsFunc([]schedule.Action{schedule.Unprovable, schedule.Hold, schedule.Lag, schedule.Late, schedule.SlowReads}, s.Has)
}

// waitsForOwn says that stock may wait to see its own writes of an owner and its pods. Its queue's delays grow meanwhile, and what fails after that it tries no more often.
// Ours begins with the shortest delay then.
func waitsForOwn(s schedule.Schedule, reads []string) bool {
	return slices.ContainsFunc(reads[:2], func(resource string) bool {
		return s.HasFor(schedule.Late, resource) || s.HasFor(schedule.Hold, resource) || s.HasFor(schedule.Lag, resource)
	})
}

// refusedMeanwhile is how many times more a quota may refuse an owner's pods: room comes as late as the proof of what is counted.
func refusedMeanwhile(s schedule.Schedule, owner model.Owner) (n int) {
	if owner.Namespace == "" {
		return 0
	}
	for _, fault := range []schedule.Action{schedule.SlowReads, schedule.Late, schedule.Hold, schedule.Lag} {
		n += doublings(s, fault, "pods", queues.first)
	}
	return n
}

// rescaled is how many pods more may come and go where the server was out of reach: how long a reflector waits before it comes back decides whether a change of replicas is seen
// before it is changed again.
func rescaled(s schedule.Schedule, owner model.Owner) (n int) {
	for _, step := range s.Steps {
		if step.Action == schedule.Scale && step.Target == owner.Name && s.Has(schedule.Down) {
			n = max(n, step.N)
		}
	}
	return n
}

// What ours may have more than stock has.
const (
	// moreRequests of one kind for one owner, besides a quarter of stock's.
	moreRequests = 10
	// conflicts is how often in a row the controllers of revisions try to write one that conflicts.
	conflicts = 5
	// evictionRetry is after how long an eviction that failed is tried again, and then half as often each time. Stock tries it five times in 40 ms, and never again.
	evictionRetry = 5 * time.Second
	// droppedFor is after how long a Deployment comes back that its queue has dropped.
	droppedFor = 164 * time.Second
	// comebackAfter is after how long an owner of which writes begin to fail comes back, and then half as often each time, where events have its queue wait for longer.
	comebackAfter = 10 * time.Second
	// nextTry is what an object waits for of which a write has failed.
	nextTry = " waits for its next try"
	// leftToDo is what stock has yet to write for an owner that it has not finished by the end, and ours has: its backoff
	// may be longer than the run.
	leftToDo = 30
	// moreMean and moreMost are for the time until a healthy owner's status is that of its pods; moreDone for the
	// longest time until its pods are those of its spec.
	moreMean = 150 * time.Millisecond
	moreMost = 2 * time.Second
	moreDone = 5 * time.Second
	// afterFault is for an owner whose caches or requests a fault touched, besides the length of the faults.
	afterFault = 30 * time.Second
	// MaxAge is what docs/operations.md says of a cache that no fault touches.
	MaxAge = 15 * time.Second
)

// Owners are those of a schedule.
func Owners(s schedule.Schedule) []model.Owner {
	var out []model.Owner
	for _, o := range s.Owners {
		owner := model.Owner{Kind: o.Kind}
		owner.Namespace, owner.Name = cmp.Or(o.Namespace, traffic.Namespace), o.Name
		out = append(out, owner)
	}
	return out
}

// Compare says where ours is worse than stock, beyond what is allowed, or does what the server's state did not call for.
func Compare(s schedule.Schedule, stock, ours Record) []Violation {
	var out []Violation
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	lost := lostRuns(s, stock, ours)
	for _, v := range ours.Unjustified {
		if (v.Rule != "run" || !lost) && !collectorExcused(s, v, stock, ours) && !claimExcused(s, v, stock, ours) && !scalingExcused(s, v, stock, ours) && !detachmentExcused(s, v, stock, ours) && !lostExcused(s, v, stock, ours) && !adoptedExcused(s, v, stock, ours) && !endpointExcused(s, v, stock, ours) && !unprovenExcused(s, v, stock, ours) {
			out = append(out, v)
		}
	}
	for i, owner := range Owners(s) {
		if stock.roomier(owner.Namespace) {
			continue
		}
		// Where the server was out of reach, chance decides on either arm which cache is back first. Until that of owners is, pods are made, and deleted again, for the one that is gone.
		replaced := s.HasFor(schedule.Replace, owner.Name) && s.Has(schedule.Down)
		for what, n := range ours.Requests[owner] {
			if replaced {
				break
			}
			own, of := n, ""
			more := moreRequests
			if ended(ours.Undone[owner]) && !ended(stock.Undone[owner]) {
				more += leftToDo
				if o := s.Owners[i]; s.HasFor(schedule.FailWrites, "pods") { // Each try is of as many pods as are rolled at once.
					more += doublings(s, schedule.FailWrites, "pods", queues.first) * max(o.Surge, o.MaxUnavailable)
				}
			}
			allowed := stock.Requests[owner][what]*5/4 + more
			if _, resource, _ := strings.Cut(what, " "); proofsAreLate(s) {
				allowed += putOffTries(s, resource) // Stock may have made the write before the server put it off.
			}
			switch reads := s.Owners[i].Reads(); what {
			case "patch pods/status":
				allowed += stock.Requests[owner][what] * doublings(s, schedule.FailWrites, reads[0], evictionRetry)
			case "update pods/status":
				allowed += podsOutOfService(s) // One pass more over the nodes tries one more for each pod that is not seen to have changed.
			case "create pods":
				allowed += refusedMeanwhile(s, owner)
				allowed += rescaled(s, owner)
				if waitsForOwn(s, reads) {
					for _, fault := range []schedule.Action{schedule.Webhook, schedule.Refuse, schedule.Ending} {
						allowed += doublings(s, fault, owner.Name, queues.first)
					}
				}
			case "delete pods":
				allowed += rescaled(s, owner)
			case "update controllerrevisions":
				if s.HasFor(schedule.FailWrites, "controllerrevisions") {
					allowed *= conflicts
				}
			case "update " + reads[1] + "/status":
				allowed += refusedMeanwhile(s, owner) // Of which the status tells.
				// Pods that stock leaves alone change no status.
				allowed += max(0, len(ours.Untold[owner])-len(stock.Untold[owner]))
				// Stock waits for its own write of which the event is lost, and writes no status meanwhile.
				if s.HasFor(schedule.LoseEvent, reads[1]) {
					continue
				}
				// Where somebody writes to the object all the time, each event has a status tried that is due and cannot be written: chance decides whether one is.
				if s.HasFor(schedule.FailWrites, reads[1]) && s.HasFor(schedule.Annotate, owner.Name) {
					continue
				}
				// A change of the spec that is not seen has each write of the status fail five times, with the queue's backoff. Stock's counts other failures, too.
				allowed += 5 * doublings(s, schedule.Late, reads[1], queues.first)
				// Each pod more changes the status, which is tried each time, twice in a reconcile: it is scheduled, ready and available, is deleted and goes. Ours goes on with a rollout
				// while stock's queue waits.
				if s.HasFor(schedule.FailWrites, reads[1]) {
					allowed += 2 * 5 * max(0, ours.times(owner, podWrites)-stock.times(owner, podWrites))
				}
				// Those of DaemonSets and ReplicaSets try a status twice in a reconcile.
				if waitsForOwn(s, reads) {
					allowed += 2 * doublings(s, schedule.FailWrites, reads[1], queues.first)
				}
			case "update replicasets":
				// If the lost event is the last, each change has the write conflict as often as the controller retries, until a list shows it. Which event is
				// lost differs between runs.
				if s.HasFor(schedule.LoseEvent, "replicasets") {
					continue
				}
			}
			if n > allowed && slices.Contains(podWrites, what) && (s.HasFor(schedule.FailWrites, "pods") || s.PutsOff("pods")) {
				// Of a rollout chance decides whether a creation or a deletion is due when writes of pods begin to fail, and of an eviction whether its patch has been made.
				n, allowed = ours.times(owner, podWrites), stock.times(owner, podWrites)*5/4+more
				of = fmt.Sprintf("; of all writes of pods %d, stock %d", n, stock.times(owner, podWrites))
				allowed += doublings(s, schedule.FailWrites, "pods", comebackAfter)
				if s.Evicts() {
					allowed += stock.times(owner, evictionWrites) * doublings(s, schedule.FailWrites, "pods", evictionRetry)
				}
			}
			if n > allowed && what == "update pods/status" && s.PutsOff("pods") {
				// Of the pods of a node that is not ready anymore chance decides which is the first, for which all others wait.
				n, allowed = ofAllOwners(s, ours, what), ofAllOwners(s, stock, what)*5/4+more
				of = fmt.Sprintf("; of all %d, stock %d", n, ofAllOwners(s, stock, what))
			}
			if n > allowed && owner.Kind == "Job" && s.QPS > 0 {
				// While its requests wait for the client's rate limiter its pods change. Stock waits for another second then, and ours only for its own writes.
				n, allowed = ours.writes(owner), stock.writes(owner)*5/4+more
				of = fmt.Sprintf("; of all its writes %d, stock %d", n, stock.writes(owner))
			}
			if n > allowed && strings.HasSuffix(what, "/status") && throttles(s) {
				sum := stock.statuses()
				n, allowed = ours.statuses(), sum*5/4+more
				of = fmt.Sprintf("; all statuses %d, stock %d", n, sum)
			}
			if n > allowed && (s.Has(schedule.SlowWrites) || crowded(s, owner.Kind)) {
				// Whose turn it is in a long queue varies by a factor of two between runs of one arm, and so does which write of pods is tried while they fail: only the sum says
				// something. A write that one arm has made before writes of its resource begin to fail the other may try all the while.
				sum := ofKind(s, stock, owner.Kind, what)
				_, resource, _ := strings.Cut(what, " ")
				n, allowed = ofKind(s, ours, owner.Kind, what), sum*5/4+moreRequests+doublings(s, schedule.FailWrites, resource, queues.first)
				of = fmt.Sprintf("; all of its kind %d, stock %d", n, sum)
			}
			if n > allowed {
				add("requests", "%s: %d times %s, stock %d%s", owner, own, what, stock.Requests[owner][what], of)
			}
		}
		ourUntold, stockUntold := ours.Untold[owner], stock.Untold[owner]
		if s.HasFor(schedule.FailWrites, "controllerrevisions") {
			ourUntold, stockUntold = without(ourUntold, ours.Backoff[owner]), without(stockUntold, stock.Backoff[owner])
		}
		fault := s.Touched(s.Owners[i])
		if owner.Kind == "Deployment" && slices.ContainsFunc(s.Owners[i].Reads()[1:], func(resource string) bool { return s.HasFor(schedule.FailWrites, resource) }) {
			// Chance decides whether events use up the tries after which its queue drops it.
			fault += droppedFor
		}
		for _, c := range []struct {
			rule       string
			ours       []Span
			stock      []Span
			mean, most time.Duration
			of         func(Record, model.Owner) []Span
		}{
			{"status latency", ourUntold, stockUntold, moreMean, moreMost, untold},
			{"pods latency", undone(ours, owner), undone(stock, owner), moreMost, moreDone, undone},
			{"deletion latency", ours.Excess[owner], stock.Excess[owner], moreMost, moreMost, excess},
		} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, open := sum(c.stock)
			if fault > 0 {
				c.most = fault + afterFault
			}
			switch {
			case ourOpen && s.HasFor(schedule.Ending, owner.Name):
				// Who tries to make pods meanwhile, because its cache shows that some are gone, waits in vain for their events, for minutes and until something changes. No
				// namespace comes back from that.
			case ourOpen && !open && ourMost > most+c.most:
				add("end", "%s: %s not ended for the last %s, stock's is", owner, c.rule, c.ours[len(c.ours)-1].For)
			case open: // stock's backoff may be longer than the run
			case fault > 0 && c.rule == "deletion latency":
				// Each one may have to wait for one more turn in a slow queue.
				if ourMost > most+c.most+queueTurn(s, owner.Kind) {
					add(c.rule, "%s: most %s of %d, stock %s of %d", owner, ourMost, len(c.ours), most, len(c.stock))
				}
			case c.rule == "pods latency" && turnsVary(s, stock, ours, owner.Kind, c.most):
			case crowded(s, owner.Kind) && ofAll(s, owner.Kind, ours, c.of) <= ofAll(s, owner.Kind, stock, c.of)*5/4+c.most:
			case fault > 0 && ourAll > all*5/4+c.most:
				// Under a fault one span may run into the next on either arm, so only their sum says something.
				add(c.rule, "%s: %s in %d times, stock %s in %d", owner, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0:
			case owner.Kind == "Job" && c.rule == "pods latency":
				// Whether one pod has finished before the next is ready decides whether two spans are one: 12 s or 18 s on
				// either arm in one and the same history.
				if ourAll > all*5/4+c.most {
					add(c.rule, "%s: %s in %d times, stock %s in %d", owner, ourAll, len(c.ours), all, len(c.stock))
				}
			case ourMean > mean+c.mean && ourAll > all:
				// Where many pods change, it is chance whether a span ends before the next begins: 3 spans of 0.6 s, or 21 of 0.2 s.
				add(c.rule, "%s: mean %s of %d, stock %s of %d", owner, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+c.most:
				add(c.rule, "%s: most %s, stock %s", owner, ourMost, most)
			}
		}
		bound := moreDone
		if fault > 0 {
			bound = fault + afterFault
		}
		left := last(undone(ours, owner))
		at, stocks := left.end(), last(stock.Undone[owner]).end()
		// A short last span is of a disturbance that stock was spared: a taint of a node where it has no pod.
		if !left.Open && ended(stock.Undone[owner]) && left.For > bound && at > stocks+bound && !turnsVary(s, stock, ours, owner.Kind, bound) {
			add("end state", "%s: reached at %s, by stock at %s", owner, at, stocks)
		}
	}
	out = append(out, compareValues(s, stock, ours)...)
	out = append(out, compareRuns(s, stock, ours)...)
	out = append(out, compareServices(s, stock, ours)...)
	out = append(out, compareFamilies(s, stock, ours)...)
	out = append(out, compareClaims(s, stock, ours)...)
	out = append(out, compareScaling(s, stock, ours)...)
	out = append(out, compareVolumes(s, stock, ours)...)
	for i, owner := range Owners(s) {
		was, now := stock.Digests[owner], ours.Digests[owner]
		if owner.Kind == "Job" && (s.HasFor(schedule.FailPod, owner.Name) || crowded(s, owner.Kind)) {
			continue // Whether a pod runs when one fails is chance, and so is whether the Job fails by its limit, or was done before it was scaled down.
		}
		if o := s.Owners[i]; o.Deadline > 0 && o.Kind == "Job" || (o.Manual || o.Partition > 0 || o.DropClaims) && s.Touched(o) > 0 {
			continue // When the Job has pods again decides whether it is done in time, and when a pod is made, which template it keeps, and whether its claim goes with it.
		}
		if now != was && s.Ahead(s.Owners[i]) == 0 && !stock.roomier(owner.Namespace) && !onlyOurs(owner, now, was) && ended(stock.Undone[owner]) && ended(ours.Undone[owner]) {
			add("end state", "%s: not as stock leaves it:\n%s\nstock:\n%s", owner, now, was)
		}
	}
	for _, wait := range ours.Waits {
		if s.Has(schedule.FailWrites) && strings.Contains(wait, nextTry) {
			continue // Stock's queue, of which nothing shows, has it wait as long.
		}
		add("wait", "at the end, %s after the last step: %s", s.Settle, wait)
	}
	for resource, age := range ours.Ages {
		if age > MaxAge {
			add("age", "%s: %s old", resource, age)
		}
	}
	for resource, n := range ours.Unknown {
		add("age", "%s: nothing known %d times", resource, n)
	}
	slices.SortFunc(out, func(a, b Violation) int {
		switch {
		case a.String() < b.String():
			return -1
		case a.String() > b.String():
			return 1
		}
		return 0
	})
	return out
}

// unprovenExcused says that a quota's value has waited for as long as it may without a proof. Stock does no less of it, unless chance had its informer back after an outage before the
// next fault.
func unprovenExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	return v.Rule == quotaRule && s.GoesOnUnproven() && (s.Has(schedule.Down) || ours.broke(quotaRule) <= stock.broke(quotaRule))
}

// lostExcused says that the event was lost that took back what a deletion is for, which failed and is tried again, or that took a pod from its owner, which lacked
// a label, or by which fewer pods are left that have ended, or that a budget needs: no resource version shows that. Stock does no less of it.
func lostExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	if v.Rule == podGCRule || v.Rule == budgetRule {
		return s.HasFor(schedule.LoseEvent, "pods") && ours.broke(v.Rule) <= stock.broke(v.Rule)
	}
	return v.Rule == deletionRule && s.HasFor(schedule.LoseEvent, "pods") && (s.HasFor(schedule.FailWrites, "pods") || s.Has(schedule.Unlabel)) && ours.broke(deletionRule) <= stock.broke(deletionRule)
}

// adoptedExcused says that a ReplicaSet that has been scaled down takes back a pod that has its label again, while its Deployment, which recreates, is scaled up:
// nothing is proven for that. Stock does no less of it.
func adoptedExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	return v.Rule == revisionsRule && s.Has(schedule.Unlabel) && s.Has(schedule.Scale) && ours.broke(revisionsRule) <= stock.broke(revisionsRule)
}

// endpointExcused says that the slices of a Service could not be written, and were so often tried that the next try comes after the end. Stock's, too.
func endpointExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	return v.Rule == endpointRule && s.HasFor(schedule.FailWrites, "endpointslices") && ours.broke(endpointRule) <= stock.broke(endpointRule)
}

// onlyOurs says that a Job is complete, and stock's never will be: it deleted pods that had finished, which a stale cache had as running. Or that the status of another
// has all pods available, and stock's, with the same pods, has not: nothing has it come back.
func onlyOurs(owner model.Owner, ours, stock string) bool {
	if owner.Kind != "Job" {
		_, pods, _ := strings.Cut(ours, "\n")
		_, stocks, _ := strings.Cut(stock, "\n")
		return strings.HasPrefix(ours, allAvailable) && !strings.HasPrefix(stock, allAvailable) && pods == stocks
	}
	return strings.HasPrefix(ours, complete) && stock == noConditions
}

// ofAllOwners is how often something was done for any owner.
func ofAllOwners(s schedule.Schedule, r Record, what string) (n int) {
	for _, o := range Owners(s) {
		n += r.Requests[o][what]
	}
	return n
}

// ofKind is how often something was done for all owners of a kind. Creations and deletions of pods count together while they fail.
func ofKind(s schedule.Schedule, r Record, kind, what string) (n int) {
	all := []string{what}
	if slices.Contains(podWrites, what) && (s.HasFor(schedule.FailWrites, "pods") || s.PutsOff("pods")) {
		all = podWrites
	}
	for _, o := range Owners(s) {
		if o.Kind == kind {
			n += r.times(o, all)
		}
	}
	return n
}

// podWrites are what an owner, and an eviction, do to its pods. A Job's patch takes off a finalizer.
var podWrites = append([]string{"create pods", "patch pods"}, evictionWrites...)

// evictionWrites are those of an eviction, of which the patch comes first.
var evictionWrites = []string{"patch pods/status", "delete pods"}

// times is how often any of that was done for an owner.
func (r Record) times(owner model.Owner, all []string) (n int) {
	for _, what := range all {
		n += r.Requests[owner][what]
	}
	return n
}

// statuses is how often a status of an owner was written.
func (r Record) statuses() (n int) {
	for _, of := range r.Requests {
		for what, times := range of {
			if strings.HasPrefix(what, "update ") && strings.HasSuffix(what, "/status") {
				n += times
			}
		}
	}
	return n
}

// throttles says that so many pods change at once that requests wait for clients' rate limiters: how often one controller writes a status in that time depends on how fast
// another one goes on.
func throttles(s schedule.Schedule) bool {
	return slices.ContainsFunc(s.Owners, func(o schedule.Owner) bool { return o.Replicas > arms.Burst || crowded(s, o.Kind) })
}

// writes is how often anything was written for an owner.
func (r Record) writes(owner model.Owner) (n int) {
	for _, times := range r.Requests[owner] {
		n += times
	}
	return n
}

// turnsVary says that it varies whose turn it is in a long queue, as for requests, and that all owners of the kind together have not waited longer for their pods than on stock.
func turnsVary(s schedule.Schedule, stock, ours Record, kind string, more time.Duration) bool {
	return (s.Has(schedule.SlowWrites) || crowded(s, kind)) && ofAll(s, kind, ours, undone) <= ofAll(s, kind, stock, undone)*5/4+more
}

// crowded says that a kind has more owners than its controller has workers: it varies whose turn it is, and whose requests wait for the client's rate limiter.
func crowded(s schedule.Schedule, kind string) bool { return len(ofTheKind(s, kind)) > arms.Workers }

// queueTurn is how long the queue of a kind may be that has more owners than its controller has workers, and whose writes are slow: each one's status is written twice.
func queueTurn(s schedule.Schedule, kind string) (long time.Duration) {
	owners := ofTheKind(s, kind)
	if len(owners) <= arms.Workers {
		return 0
	}
	for _, step := range s.Steps {
		if step.Action == schedule.SlowWrites && step.Target == owners[0].Reads()[1] {
			long = max(long, 2*step.Delay)
		}
	}
	return long * time.Duration(len(owners)/arms.Workers)
}

// ofTheKind are the owners of a kind.
func ofTheKind(s schedule.Schedule, kind string) []schedule.Owner {
	return slices.DeleteFunc(slices.Clone(s.Owners), func(o schedule.Owner) bool { return o.Kind != kind })
}

// untold, undone and excess are the spans of an owner, undone without its queue's backoff.
func untold(r Record, o model.Owner) []Span { return r.Untold[o] }
func undone(r Record, o model.Owner) []Span { return without(r.Undone[o], r.Backoff[o]) }
func excess(r Record, o model.Owner) []Span { return r.Excess[o] }

// ofAll is how long the spans of all owners of a kind are, in sum.
func ofAll(s schedule.Schedule, kind string, r Record, of func(Record, model.Owner) []Span) (all time.Duration) {
	for _, o := range Owners(s) {
		if o.Kind == kind {
			_, _, own, _ := sum(of(r, o))
			all += own
		}
	}
	return all
}

// ended says that the last span has an end.
func ended(spans []Span) bool { return !last(spans).Open }

// last is the last span, or none.
func last(spans []Span) Span {
	if len(spans) == 0 {
		return Span{}
	}
	return spans[len(spans)-1]
}

func (s Span) end() time.Duration { return (s.From + s.For).Round(time.Millisecond) }

func sum(spans []Span) (mean, most, all time.Duration, open bool) {
	for _, s := range spans {
		all += s.For
		most = max(most, s.For)
		open = open || s.Open
	}
	if len(spans) > 0 {
		mean = all / time.Duration(len(spans))
	}
	return mean.Round(time.Millisecond), most.Round(time.Millisecond), all.Round(time.Millisecond), open
}
