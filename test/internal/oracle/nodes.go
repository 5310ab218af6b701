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
)

// recorderSlack is how much later than another one an event of another resource may be recorded.
const recorderSlack = time.Second

// Deaths says which nodes may be marked not Ready, and tainted for it.
type Deaths struct {
	// Nodes may be, the others never.
	Nodes sets.Set[string]
	// Grace is how long such a node must have been silent before it is marked. It needs leases recorded;
	// zero leaves it unjudged.
	Grace time.Duration
}

// said is the last time by its own clock that a node told, and the version that told it.
type said struct {
	at time.Time
	rv uint64
}

// signs returns when each node gave a sign of life: renewed its lease or reported its status. Any other time is
// one, also an earlier one, from a node whose clock was set back; but not one that is older by its resource
// version, as after etcd was restored.
func signs(t *truth.Recorder) map[string][]time.Time {
	out := map[string][]time.Time{}
	note := func(last map[string]said, e truth.Event, at time.Time) {
		if before, known := last[e.Name]; known && !at.After(before.at) && (at.Equal(before.at) || e.RV < before.rv) {
			return
		}
		last[e.Name] = said{at, e.RV}
		out[e.Name] = append(out[e.Name], e.Time)
	}
	renewed := map[string]said{}
	for _, e := range t.Events(truth.Leases) {
		lease := e.Object.(*coordinationv1.Lease)
		if e.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil || e.Type == watch.Deleted {
			continue
		}
		note(renewed, e, lease.Spec.RenewTime.Time)
	}
	reported := map[string]said{}
	for _, e := range t.Events(truth.Nodes) {
		ready := condition(e)
		if ready == nil || e.Type == watch.Deleted {
			continue
		}
		note(reported, e, ready.LastHeartbeatTime.Time)
	}
	for _, times := range out {
		slices.SortFunc(times, time.Time.Compare)
	}
	return out
}

// LastSign returns when each node gave its last sign of life so far. It needs nodes and leases recorded.
func LastSign(t *truth.Recorder) map[string]time.Time {
	out := map[string]time.Time{}
	for node, times := range signs(t) {
		out[node] = times[len(times)-1]
	}
	return out
}

// WidestSilence returns the longest time that one of the nodes was silent between two times, and which one
// it was: how far they were from being rightly taken for dead.
func WidestSilence(t *truth.Recorder, from, to time.Time, nodes ...string) (time.Duration, string) {
	all := signs(t)
	widest, which := time.Duration(0), ""
	for _, node := range nodes {
		last := from
		for _, at := range append(slices.Clone(all[node]), to) {
			if at.Before(from) {
				continue
			}
			if at.After(to) {
				at = to
			}
			if d := at.Sub(last); d > widest {
				widest, which = d, node
			}
			last = at
		}
	}
	return widest, which
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

// nodesWronged looks for nodes marked not Ready, or tainted for it, though they were alive. A node that says
// itself that it is not Ready, or has said nothing yet, or did so a moment ago, may be tainted for that.
func nodesWronged(t *truth.Recorder, deaths Deaths) []Violation {
	var out []Violation
	notReady := map[types.UID]time.Time{}
	var alive map[string][]time.Time
	if deaths.Grace > 0 {
		alive = signs(t)
	}
	changes(t, func(before, e truth.Event) {
		if ready := condition(before); ready == nil || ready.Status == corev1.ConditionFalse {
			notReady[e.UID] = e.Time
		}
		violation := Violation{Oracle: "S2", Object: e.Name, RV: e.RV, Time: e.Time}
		if isUnknown(e) && !isUnknown(before) {
			switch silent := silence(alive[e.Name], e.Time); {
			case !deaths.Nodes.Has(e.Name):
				violation.Rule, violation.Detail = RuleLiveMarked, condition(e).Reason
				out = append(out, violation)
			case deaths.Grace > 0 && silent < deaths.Grace-recorderSlack:
				violation.Rule, violation.Detail = RuleMarkedEarly, fmt.Sprintf("silent for %v of %v", silent, deaths.Grace)
				out = append(out, violation)
			}
		}
		for _, taint := range added(before, e) {
			if taint.Key == corev1.TaintNodeNotReady && e.Time.Sub(notReady[e.UID]) < recorderSlack {
				continue
			}
			if (taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady) && !deaths.Nodes.Has(e.Name) {
				violation.Rule, violation.Detail = RuleLiveTainted, taint.ToString()
				out = append(out, violation)
			}
		}
	})
	return out
}

// silence is how long before a time the last sign of life was.
func silence(signs []time.Time, at time.Time) time.Duration {
	last := time.Time{}
	for _, sign := range signs {
		if sign.Before(at) {
			last = sign
		}
	}
	return at.Sub(last)
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
