// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// EndState is a digest of what there is by the truth as it stands, in lines that have no generated name, UID, time or count of what
// happened on the way: two runs that ask for the same must come to the same, whatever the faults. It needs pods, nodes, daemonsets,
// controllerrevisions and replicasets recorded, and says nothing of StatefulSets if these are not.
func EndState(t *truth.Recorder) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, e := range t.At(truth.Nodes, truth.Latest) {
		node := e.Object.(*corev1.Node)
		var taints []string
		for _, taint := range node.Spec.Taints {
			taints = append(taints, taint.Key+":"+string(taint.Effect))
		}
		slices.Sort(taints)
		status := corev1.ConditionStatus("none")
		if c := condition(e); c != nil {
			status = c.Status
		}
		say("node %s: Ready %s, taints %v", node.Name, status, taints)
	}
	for uid, e := range t.At(truth.DaemonSets, truth.Latest) {
		ds := daemonSet(e)
		current := 0
		for _, r := range t.At(truth.ControllerRevisions, truth.Latest) {
			if DaemonSetOf(revision(r)) == uid && revision(r).Labels["controller-revision-hash"] == currentHash(t, ds, truth.Latest) {
				current++
			}
		}
		say("DaemonSet %s: images %v, %s, %d current revisions", ds.Name, images(ds.Spec.Template.Spec), shape(brief(ds.Status)), current)
	}
	for _, e := range t.At(truth.StatefulSets, truth.Latest) {
		set := statefulSet(e)
		say("StatefulSet %s: images %v, wants %d, has %d, %d updated, %d ready, %d available", set.Name, images(set.Spec.Template.Spec), wantedOf(set),
			set.Status.Replicas, set.Status.UpdatedReplicas, set.Status.ReadyReplicas, set.Status.AvailableReplicas)
	}
	top := owners(t)
	pods := map[string]int{}
	for _, e := range t.At(truth.Pods, truth.Latest) {
		p := pod(e)
		owner := "nobody"
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			if owner = top[ref.UID]; owner == "" {
				owner = ref.Kind + " that is gone"
			}
		}
		on := ""
		if DaemonSetOf(p) != "" {
			on = " on " + NodeOf(p)
		}
		pods[fmt.Sprintf("pods of %s%s, Ready %t, deleted %t, images %v", owner, on, podReady(e), !live(e), images(p.Spec))]++
	}
	for what, n := range pods {
		say("%d %s", n, what)
	}
	slices.Sort(out)
	return out
}

// owners returns what pods belong to, by the UID of what owns them: what has lost its owner is not among them.
func owners(t *truth.Recorder) map[types.UID]string {
	top := map[types.UID]string{}
	for uid, e := range t.At(truth.DaemonSets, truth.Latest) {
		top[uid] = "DaemonSet " + e.Name
	}
	for uid, e := range t.At(truth.StatefulSets, truth.Latest) {
		top[uid] = "StatefulSet " + e.Name
	}
	for uid, e := range t.At(truth.ReplicaSets, truth.Latest) {
		m := e.Object.(metav1.Object)
		top[uid] = "ReplicaSet " + m.GetName()
		if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
			top[uid] = ref.Kind + " " + ref.Name
		}
	}
	return top
}

// LeftOver returns the pods that are being deleted, or belong to a DaemonSet, StatefulSet or ReplicaSet that is not there.
func LeftOver(t *truth.Recorder) (out []string) {
	top := owners(t)
	for _, e := range t.At(truth.Pods, truth.Latest) {
		ref := metav1.GetControllerOfNoCopy(pod(e))
		if !live(e) || ref != nil && top[ref.UID] == "" {
			out = append(out, e.Name)
		}
	}
	return out
}

// shape leaves out the generation, which counts the changes on the way.
func shape(status string) string {
	before, _, _ := strings.Cut(status, " generation=")
	return before
}

func images(spec corev1.PodSpec) (out []string) {
	for _, c := range spec.Containers {
		out = append(out, c.Image)
	}
	return out
}

// Unlike returns the lines of two end states that only one of them has, with a sign.
func Unlike(ours, reference []string) (out []string) {
	for _, line := range ours {
		if !slices.Contains(reference, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range reference {
		if !slices.Contains(ours, line) {
			out = append(out, "- "+line)
		}
	}
	return out
}
