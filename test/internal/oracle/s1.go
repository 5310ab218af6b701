// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// slot is where one live pod of a DaemonSet belongs.
type slot struct {
	set  types.UID
	node string
}

// Surplus is S1: it goes through every event of the pods and returns each that put a second live pod of a
// DaemonSet on one node, or a third where the DaemonSet surges. It needs pods and daemonsets recorded.
func Surplus(t *truth.Recorder) []Violation {
	var out []Violation
	sets := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.DaemonSets) {
		sets[e.UID] = e // whether it surges is taken as it was in the end: no scenario changes that
	}
	slots := map[slot]map[types.UID]string{}
	where := map[types.UID]slot{}
	for _, e := range t.Events(truth.Pods) {
		p := pod(e)
		s := slot{DaemonSetOf(p), NodeOf(p)}
		if old, known := where[e.UID]; known && (old != s || !live(e)) {
			delete(slots[old], e.UID)
			delete(where, e.UID)
		}
		if s.set == "" || s.node == "" || !live(e) {
			continue
		}
		if _, known := where[e.UID]; known {
			continue
		}
		where[e.UID] = s
		if slots[s] == nil {
			slots[s] = map[types.UID]string{}
		}
		slots[s][e.UID] = e.Name
		limit := 1
		if ds, ok := sets[s.set]; ok && ds.Type != watch.Deleted && surges(daemonSet(ds)) {
			limit = 2
		}
		if len(slots[s]) > limit {
			out = append(out, Violation{
				Oracle: "S1", Rule: RuleSurplus, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time,
				Detail: fmt.Sprintf("%d live pods on node %s, at most %d may be", len(slots[s]), s.node, limit),
			})
		}
	}
	return out
}
