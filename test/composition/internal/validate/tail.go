// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// moreTail is what ours may have more of a healthy owner's p99. A reconcile waits for the event of a write of its own, or for a proof: a request and an
	// event. What is then seen first may be what the scheduler did meanwhile.
	moreTail = model.RequestTime + model.WatchTime + traffic.ScheduleTime
	// leastOfTail is of how many times p99 says something. It leaves out the history that has the slowest, which is chance: a Job's change may fall just after
	// upstream's controller has collected those of a second, and of DaemonSets that queue for one worker any may be the last, on either arm.
	leastOfTail = 20
)

// How rules end that are of Jobs, and of Deployments.
const ofJobs, ofDeployments = " of Jobs", " of Deployments"

// Tail has how long what no fault touches took on both arms, in many histories, by rule.
type Tail struct {
	histories   int
	stock, ours map[string][]taken
}

// taken is how long something took, and in which history.
type taken struct {
	history int
	time    time.Duration
}

// Add adds the healthy owners of a history.
func (t *Tail) Add(s schedule.Schedule, stock, ours Record) {
	if t.stock == nil {
		t.stock, t.ours = map[string][]taken{}, map[string][]taken{}
	}
	t.histories++
	if throttles(s) {
		return // Chance decides whose requests wait, and all owners' may.
	}
	for i, owner := range Owners(s) {
		onlyOurs := ended(ours.Undone[owner]) && !ended(stock.Undone[owner]) // How long stock would have taken is not known.
		if s.Touched(s.Owners[i]) == 0 && !crowded(s, owner.Kind) && !stock.roomier(owner.Namespace) && !onlyOurs {
			t.add(t.stock, owner, s.Owners[i], stock)
			t.add(t.ours, owner, s.Owners[i], ours)
		}
	}
}

func (t *Tail) add(to map[string][]taken, owner model.Owner, o schedule.Owner, r Record) {
	add := func(rule string, spans []Span) {
		for _, span := range spans {
			if !span.Open {
				to[rule] = append(to[rule], taken{t.histories, span.For})
			}
		}
	}
	slow := o.Starts > 0 || o.Stops > 0
	if !slow {
		add("deletion latency", r.Excess[owner])
	}
	if owner.Kind == "Job" {
		// Upstream's controller collects a Job's changes for a second, which would hide those of the others. How long its pods take is
		// chance, see Compare.
		add("status latency"+ofJobs, r.Untold[owner])
		return
	}
	of := ""
	if owner.Kind == "Deployment" {
		of = ofDeployments
	}
	add("status latency"+of, r.Untold[owner])
	if slow || o.MinReady > 0 {
		return // Rollouts take minutes then, and chance decides whether two of them are one.
	}
	add("pods latency"+of, without(r.Undone[owner], r.Backoff[owner]))
}

// Judged says whether there was enough to judge.
func (t *Tail) Judged() bool {
	return min(len(t.stock["status latency"]), len(t.ours["status latency"])) >= leastOfTail
}

// Judge says where ours is slower than stock.
func (t *Tail) Judge() (out []Violation) {
	for rule, stock := range t.stock {
		ours := t.ours[rule]
		if min(len(stock), len(ours)) < leastOfTail {
			continue
		}
		more := moreTail
		if strings.HasSuffix(rule, ofJobs) || strings.HasSuffix(rule, ofDeployments) { // A change passes two controllers, or waits for another.
			more *= 2
		}
		if is, was := p99(ours), p99(stock); is > was+more {
			out = append(out, Violation{"p99", fmt.Sprintf("%s of healthy owners: %s of %d, stock %s of %d", rule, is, len(ours), was, len(stock))})
		}
	}
	slices.SortFunc(out, func(a, b Violation) int { return cmp.Compare(a.Text, b.Text) })
	return out
}

// String is for logs.
func (t *Tail) String() (out string) {
	for _, rule := range slices.Sorted(maps.Keys(t.stock)) {
		out += fmt.Sprintf("%s of healthy owners, p99: %s of %d, stock %s of %d\n", rule, p99(t.ours[rule]), len(t.ours[rule]), p99(t.stock[rule]), len(t.stock[rule]))
	}
	return out
}

// p99 leaves out the history that has the slowest.
func p99(all []taken) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slowest := slices.MaxFunc(all, func(a, b taken) int { return cmp.Compare(a.time, b.time) }).history
	var times []time.Duration
	for _, t := range all {
		if t.history != slowest {
			times = append(times, t.time)
		}
	}
	slices.Sort(times)
	return oracle.Percentile(times, 99).Round(time.Millisecond)
}
