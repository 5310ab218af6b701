// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// The rules of S2 about nodes.
const (
	RuleLiveMarked  = "live node marked Unknown"
	RuleLiveTainted = "live node tainted"
	RuleMarkedEarly = "dead node marked early"
	// RuleMarkedLate is one of L.
	RuleMarkedLate = "dead node shown Ready for too long"
)

// passPeriod is how long node lifecycle rests between two passes over the nodes.
const passPeriod = 5 * time.Second

// Deaths says which nodes may be marked not Ready, and tainted for it.
type Deaths struct {
	// Nodes may be, the others only if they were silent for the grace period all the same, as on a machine that starves kwok.
	Nodes sets.Set[string]
	// Grace is how long a node must have been silent before it is marked. A silence counts if a sign of life ended it while a
	// pass was under way, which upstream makes every five seconds. It needs leases recorded; zero leaves silences unjudged.
	Grace time.Duration
}

// Bound is how soon after its last sign of life a dead node is marked at the latest: the grace period counts from the pass that
// learns of that sign, and the pass that finds it over comes up to one period later. Each pass takes its time.
func (d Deaths) Bound(pass time.Duration) time.Duration { return d.Grace + 2*(passPeriod+pass) }

// said is the last time by its own clock that a node told, the version that told it, and when that was recorded.
type said struct {
	at       time.Time
	rv       uint64
	recorded time.Time
}

// sign is a sign of life.
type sign struct {
	// recorded is when it came to the recorder, given when it was given at the earliest: the time that the lease has, if it has one
	// of a clock that is right, as controllers may count from that.
	given, recorded time.Time
	// initial says that it was there when the recording began, so that nothing is known of a silence before it.
	initial bool
}

// signs returns when each node gave a sign of life: renewed its lease or reported its status. Any other time is
// one, also an earlier one, from a node whose clock was set back; but not one that is older by its resource
// version, as after etcd was restored.
func signs(t *truth.Recorder) map[string][]sign {
	out := map[string][]sign{}
	note := func(last map[string]said, e truth.Event, at, given time.Time) {
		before, known := last[e.Name]
		if known && !at.After(before.at) && (at.Equal(before.at) || e.RV < before.rv) {
			return
		}
		// One that was given before the last one came is of a clock that is wrong. What was there when the recording began had come
		// before.
		if e.Initial {
			given = at
		}
		if given.After(e.Time) || !e.Initial && (!known || !given.After(before.recorded)) {
			given = e.Time
		}
		last[e.Name] = said{at, e.RV, e.Time}
		out[e.Name] = append(out[e.Name], sign{given, e.Time, e.Initial})
	}
	renewed := map[string]said{}
	for _, e := range t.Events(truth.Leases) {
		lease := e.Object.(*coordinationv1.Lease)
		if e.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil || e.Type == watch.Deleted {
			continue
		}
		note(renewed, e, lease.Spec.RenewTime.Time, lease.Spec.RenewTime.Time)
	}
	reported := map[string]said{}
	for _, e := range t.Events(truth.Nodes) {
		ready := condition(e)
		if ready == nil || e.Type == watch.Deleted {
			continue
		}
		note(reported, e, ready.LastHeartbeatTime.Time, e.Time)
	}
	for _, of := range out {
		slices.SortFunc(of, func(a, b sign) int { return a.recorded.Compare(b.recorded) })
	}
	return out
}

// LastSign returns when each node gave its last sign of life so far. It needs nodes and leases recorded.
func LastSign(t *truth.Recorder) map[string]time.Time {
	out := map[string]time.Time{}
	for node, times := range signs(t) {
		out[node] = times[len(times)-1].recorded
	}
	return out
}

// Silences returns the longest time that each of the nodes was silent between two times: how far it was from being rightly taken
// for dead. It needs nodes and leases recorded.
func Silences(t *truth.Recorder, from, to time.Time, nodes ...string) map[string]time.Duration {
	all, out := signs(t), map[string]time.Duration{}
	for _, node := range nodes {
		last := from
		for _, s := range append(slices.Clone(all[node]), sign{recorded: to}) {
			at := s.recorded
			if at.Before(from) {
				continue
			}
			if at.After(to) {
				at = to
			}
			out[node] = max(out[node], at.Sub(last))
			last = at
		}
	}
	return out
}

// FirstMarked returns when each node was first marked Unknown. It needs nodes recorded.
func FirstMarked(t *truth.Recorder) map[string]time.Time {
	out := map[string]time.Time{}
	for node, times := range Marks(t) {
		out[node] = times[0]
	}
	return out
}

// Marks returns each time at which a node was marked Unknown.
func Marks(t *truth.Recorder) map[string][]time.Time {
	out := map[string][]time.Time{}
	changes(t, func(before, e truth.Event) {
		if isUnknown(e) && !isUnknown(before) {
			out[e.Name] = append(out[e.Name], e.Time)
		}
	})
	return out
}

// Tainted returns each time at which a node got a taint of this key and effect.
func Tainted(t *truth.Recorder, key string, effect corev1.TaintEffect) map[string][]time.Time {
	out := map[string][]time.Time{}
	changes(t, func(before, e truth.Event) {
		for _, taint := range added(before, e) {
			if taint.Key == key && taint.Effect == effect {
				out[e.Name] = append(out[e.Name], e.Time)
			}
		}
	})
	return out
}

// changes visits each change of a node together with what it was before.
func changes(t *truth.Recorder, visit func(before, after truth.Event)) {
	previous := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.Nodes) {
		before, known := previous[e.UID]
		previous[e.UID] = e
		if known && e.Type == watch.Modified {
			visit(before, e)
		}
	}
}

// nodesWronged looks for nodes marked not Ready, or tainted for it, though they were alive. One that was marked rightly may be
// tainted. A node that says itself that it is not Ready, or has said nothing yet, or did so when the request was decided on, may be
// tainted for that. One that may be dead, but is Ready again, may be so no longer than an action may rest on what was so before.
func nodesWronged(t *truth.Recorder, a *arrivals, deaths Deaths) []Violation {
	var out []Violation
	notReady, ready := map[types.UID]time.Time{}, map[types.UID]time.Time{}
	mayBe := deaths.Nodes.Clone() // marked and tainted
	var alive map[string][]sign
	if deaths.Grace > 0 {
		alive = signs(t)
	}
	from := joined(t)
	changes(t, func(before, e truth.Event) {
		if ready := condition(before); ready == nil || ready.Status == corev1.ConditionFalse {
			notReady[e.UID] = e.Time
		}
		arrived := a.at(truth.Nodes, e)
		violation := Violation{Oracle: "S2", Object: e.Name, RV: e.RV, Time: e.Time}
		if isUnknown(e) && !isUnknown(before) {
			silent := silence(alive[e.Name], from[e.UID], arrived, promised+passPeriod+a.lag)
			switch known := deaths.Nodes.Has(e.Name); {
			case deaths.Grace > 0 && silent >= deaths.Grace-a.lag:
				mayBe.Insert(e.Name)
			case !known:
				mayBe.Delete(e.Name)
				violation.Rule, violation.Detail = RuleLiveMarked, condition(e).Reason
				if deaths.Grace > 0 {
					violation.Detail += fmt.Sprintf(", silent for %v of %v", silent, deaths.Grace)
				}
				out = append(out, violation)
			case deaths.Grace > 0:
				violation.Rule, violation.Detail = RuleMarkedEarly, fmt.Sprintf("silent for %v of %v", silent, deaths.Grace)
				out = append(out, violation)
			}
		}
		for _, taint := range added(before, e) {
			if taint.Key == corev1.TaintNodeNotReady && arrived.Sub(notReady[e.UID]) <= promised+a.lag {
				continue
			}
			if taint.Key != corev1.TaintNodeUnreachable && taint.Key != corev1.TaintNodeNotReady {
				continue
			}
			since, known := ready[e.UID]
			revived := known && isReady(before) && isReady(e) && taint.Effect == corev1.TaintEffectNoExecute && arrived.Sub(since) > promised+a.lag
			if !mayBe.Has(e.Name) || revived {
				violation.Rule, violation.Detail = RuleLiveTainted, taint.ToString()
				out = append(out, violation)
			}
		}
		if isReady(e) && !isReady(before) {
			ready[e.UID] = e.Time
		}
	})
	return out
}

// Period is a time.
type Period struct{ From, To time.Time }

// Late returns the nodes that were silent for longer than a bound without being marked Unknown by then, until a time. The bound
// counts anew from the end of each excuse, in which nobody could have known that a node is dead. It needs nodes and leases recorded.
func Late(t *truth.Recorder, bound time.Duration, until time.Time, excuses ...Period) []Violation {
	var out []Violation
	slices.SortFunc(excuses, func(a, b Period) int { return a.From.Compare(b.From) })
	states := map[string][]truth.Event{}
	for _, e := range t.Events(truth.Nodes) {
		states[e.Name] = append(states[e.Name], e)
	}
	for node, gave := range signs(t) {
		for i, from := range gave {
			to := until
			if i+1 < len(gave) {
				to = gave[i+1].recorded
			}
			due := from.recorded.Add(bound)
			for _, excuse := range excuses {
				if excuse.From.Before(due) && excuse.To.Add(bound).After(due) && excuse.To.After(from.recorded) {
					due = excuse.To.Add(bound)
				}
			}
			if to.Before(due) {
				continue
			}
			var then truth.Event
			for _, e := range states[node] {
				if !e.Time.After(due) {
					then = e
				}
			}
			if then.Object != nil && then.Type != watch.Deleted && isReady(then) {
				out = append(out, Violation{Oracle: "L", Rule: RuleMarkedLate, Object: node, Time: due,
					Detail: fmt.Sprintf("silent since %s, %v allowed", from.recorded.Format("15:04:05.000"), bound)})
			}
		}
	}
	return sorted(out)
}

// joined returns when each node was made, if that was recorded.
func joined(t *truth.Recorder) map[types.UID]time.Time {
	out := map[types.UID]time.Time{}
	for _, e := range t.Events(truth.Nodes) {
		if e.Type == watch.Added && !e.Initial {
			out[e.UID] = e.Time
		}
	}
	return out
}

// silence is how long a node was silent, at most, since it joined, before a time or before a sign of life that it gave within a window before that.
func silence(signs []sign, joined, at time.Time, window time.Duration) time.Duration {
	longest := time.Duration(0)
	last := joined
	for _, s := range signs {
		if !s.recorded.Before(at) {
			break
		}
		if !s.initial && !last.IsZero() && s.recorded.After(at.Add(-window)) {
			longest = max(longest, s.given.Sub(last))
		}
		if s.given.After(last) {
			last = s.given
		}
	}
	return max(longest, at.Sub(last))
}

func condition(e truth.Event) *corev1.NodeCondition {
	conditions := e.Object.(*corev1.Node).Status.Conditions
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

func isUnknown(e truth.Event) bool {
	ready := condition(e)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

func isReady(e truth.Event) bool {
	ready := condition(e)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// added returns the taints that a node did not have before.
func added(before, after truth.Event) []corev1.Taint {
	had := before.Object.(*corev1.Node).Spec.Taints
	return slices.DeleteFunc(slices.Clone(after.Object.(*corev1.Node).Spec.Taints), func(taint corev1.Taint) bool {
		return slices.ContainsFunc(had, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	})
}

// NodesReady returns nil if, by the truth as it stands, the nodes are Ready and have no taint that says
// otherwise.
func NodesReady(t *truth.Recorder, nodes ...string) error {
	want := sets.New(nodes...)
	for _, e := range t.At(truth.Nodes, truth.Latest) {
		if !want.Has(e.Name) {
			continue
		}
		want.Delete(e.Name)
		if ready := condition(e); ready == nil || ready.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not Ready", e.Name)
		}
		for _, taint := range e.Object.(*corev1.Node).Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady {
				return fmt.Errorf("node %s is Ready and tainted with %s", e.Name, taint.ToString())
			}
		}
	}
	if want.Len() > 0 {
		return fmt.Errorf("node %s is not there", want.UnsortedList()[0])
	}
	return nil
}
