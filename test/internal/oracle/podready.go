// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// RuleLivePod is broken by a pod that is marked not Ready, and so gets no traffic, though its node was Ready.
const RuleLivePod = "pod of a Ready node marked not Ready"

// podsWronged looks for pods that node lifecycle marked not Ready though their nodes were Ready, for longer than an action may rest on
// what was so before. The pods of a node are marked one after the other, so that each may follow the one before as late.
func podsWronged(t *truth.Recorder, a *arrivals) []Violation {
	var out []Violation
	nodes := map[string][]truth.Event{}
	for _, e := range t.Events(truth.Nodes) {
		nodes[e.Name] = append(nodes[e.Name], e)
	}
	marked := map[string]time.Time{} // when the last one of a node was, rightly
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.Pods) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || !podReady(before) || podReady(e) || !live(e) {
			continue
		}
		w := a.last(truth.Pods, e, func(w *controlplane.AuditEvent) bool {
			return By(w) == NodeController && w.ObjectRef.Subresource == "status" && (w.Verb == "update" || w.Verb == "patch")
		})
		if w == nil || succeeded(w) && w.StageTimestamp.Add(a.lag).Before(before.Time) {
			continue // somebody else did it
		}
		node := pod(e).Spec.NodeName
		since, ready := readySince(nodes[node], e.RV)
		if marked[node].After(since) {
			since = marked[node]
		}
		arrived := w.RequestReceivedTimestamp
		if ready && arrived.Sub(since) > promised+a.lag {
			out = append(out, Violation{
				Oracle: "S2", Rule: RuleLivePod, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time,
				Detail: fmt.Sprintf("node %s is Ready since %s", node, since.Format("15:04:05.000")),
			})
			continue
		}
		marked[node] = arrived
	}
	return out
}

// readySince returns whether a node is Ready at a resource version, and since when: the zero time if ever since the recording began.
func readySince(events []truth.Event, rv uint64) (since time.Time, ready bool) {
	for i, e := range events {
		if e.RV >= rv && !e.Initial {
			break
		}
		switch was := ready; {
		case !isReady(e):
			ready = false
		case !was:
			ready = true
			if since = e.Time; i == 0 {
				since = time.Time{}
			}
		}
	}
	return since, ready
}

func podReady(e truth.Event) bool {
	conditions := pod(e).Status.Conditions
	i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return i >= 0 && conditions[i].Status == corev1.ConditionTrue
}
