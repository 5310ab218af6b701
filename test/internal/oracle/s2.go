// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Deletion is one pod's deletion by a controller, as it really was.
type Deletion struct {
	// By is the controller's service account.
	By string
	// Pod is its last state before the deletion, RV the resource version of the deletion.
	Pod *corev1.Pod
	RV  uint64
	// Request is the controller's.
	Request controlplane.AuditEvent
}

// Judge says why a deletion was right. Nothing means that it was not, or that this judge does not know.
type Judge func(t *truth.Recorder, d Deletion) (why string)

// Unjustified is S2: every pod deleted by one of kube-controller-manager's controllers must have a judge
// that says why, and no node may be marked Unknown, or tainted for not being Ready, but as deaths allow.
// It needs pods, nodes, daemonsets and controllerrevisions recorded.
func Unjustified(t *truth.Recorder, writes []controlplane.AuditEvent, deaths Deaths, judges ...Judge) []Violation {
	var out []Violation
	for _, d := range deletions(t, writes) {
		why := ""
		for _, judge := range judges {
			if why == "" {
				why = judge(t, d)
			}
		}
		if why == "" {
			out = append(out, Violation{
				Oracle: "S2", Rule: RuleUnjustified, Object: d.Pod.Namespace + "/" + d.Pod.Name, RV: d.RV, Time: d.Request.StageTimestamp,
				Detail: fmt.Sprintf("by %s, on node %s", d.By, NodeOf(d.Pod)),
			})
		}
	}
	return sorted(append(out, nodesWronged(t, deaths)...))
}

// deletions joins what the audit log says (who) with the truth (what it was at that moment).
func deletions(t *truth.Recorder, writes []controlplane.AuditEvent) []Deletion {
	by := map[string]controlplane.AuditEvent{}
	for _, e := range writes {
		if e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "" && e.Verb == "delete" && succeeded(&e) && e.ServiceAccount() != "" {
			if _, known := by[object(&e)]; !known {
				by[object(&e)] = e
			}
		}
	}
	var out []Deletion
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.Pods) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || !live(before) || live(e) {
			continue
		}
		if write, ok := by[e.Namespace+"/"+e.Name]; ok {
			out = append(out, Deletion{By: write.ServiceAccount(), Pod: pod(before), RV: e.RV, Request: write})
		}
	}
	return out
}

// DeletedBy counts the pods that each service account has deleted.
func DeletedBy(t *truth.Recorder, writes []controlplane.AuditEvent) map[string]int {
	out := map[string]int{}
	for _, d := range deletions(t, writes) {
		out[d.By]++
	}
	return out
}

// DaemonSetDeletes judges the deletions by the DaemonSet controller, and by the garbage collector for it,
// on the true state just before the deletion.
func DaemonSetDeletes(t *truth.Recorder, d Deletion) string {
	at := d.RV - 1
	set, ok := t.At(truth.DaemonSets, at)[DaemonSetOf(d.Pod)]
	if DaemonSetOf(d.Pod) == "" {
		return ""
	}
	if !ok || daemonSet(set).DeletionTimestamp != nil {
		return "its DaemonSet is gone"
	}
	if d.By != DaemonSetController {
		return ""
	}
	ds := daemonSet(set)
	if d.Pod.Status.Phase == corev1.PodFailed || d.Pod.Status.Phase == corev1.PodSucceeded {
		return "it has ended"
	}
	node, ok := t.Find(truth.Nodes, "", NodeOf(d.Pod), at)
	if !ok {
		return "its node is gone"
	}
	if _, stay := daemon.NodeShouldRunDaemonPod(logr.Discard(), node.Object.(*corev1.Node), ds); !stay {
		return "its node must not run it"
	}
	for _, other := range t.At(truth.Pods, at) {
		if other.UID != d.Pod.UID && DaemonSetOf(pod(other)) == ds.UID && NodeOf(pod(other)) == node.Name && live(other) {
			return "another one lives on its node"
		}
	}
	// A template that has no revision yet makes every pod an old one.
	if ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
		(currentHash(t, ds, at) == "" || d.Pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != currentHash(t, ds, at)) {
		return "it is of an old revision"
	}
	return ""
}

// currentHash returns the label of the revision that holds a DaemonSet's template, if there is one.
func currentHash(t *truth.Recorder, ds *appsv1.DaemonSet, at uint64) string {
	for _, e := range t.At(truth.ControllerRevisions, at) {
		if DaemonSetOf(revision(e)) != ds.UID {
			continue
		}
		if match, err := daemon.Match(ds, revision(e)); err == nil && match {
			return revision(e).Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
		}
	}
	return ""
}
