// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// TaintEvictions judges the deletions by taint eviction, which acts as the node controller, on the true
// state just before the deletion: the node must have a NoExecute taint that the pod does not tolerate, or has
// tolerated for as long as it says.
func TaintEvictions(t *truth.Recorder, d Deletion) string {
	if d.By != NodeController {
		return ""
	}
	node, ok := t.Find(truth.Nodes, "", d.Pod.Spec.NodeName, d.RV-1)
	if !ok {
		return "its node is gone"
	}
	for _, taint := range node.Object.(*corev1.Node).Spec.Taints {
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		since := taintedSince(t, d.arrivals, node.Name, taint, d.RV)
		if tolerated := tolerates(d.Pod, taint); tolerated >= 0 && d.Request.RequestReceivedTimestamp.Sub(since) >= tolerated-d.arrivals.lag {
			return "its node is tainted with " + taint.ToString()
		}
	}
	return ""
}

// tolerates is how long a pod tolerates a taint; negative means for ever.
func tolerates(pod *corev1.Pod, taint corev1.Taint) time.Duration {
	shortest, found := time.Duration(-1), false
	for _, toleration := range pod.Spec.Tolerations {
		if !toleration.ToleratesTaint(klog.Background(), &taint, true) {
			continue
		}
		found = true
		if s := toleration.TolerationSeconds; s != nil {
			d := max(0, time.Duration(*s)*time.Second)
			if shortest < 0 || d < shortest {
				shortest = d
			}
		}
	}
	if !found {
		return 0
	}
	return shortest
}

// taintedSince returns when the request arrived by which a node got a taint that it has had without a break until a resource version.
func taintedSince(t *truth.Recorder, a *arrivals, node string, taint corev1.Taint, rv uint64) time.Time {
	var since time.Time
	has := false
	for _, e := range t.Events(truth.Nodes) {
		if e.Name != node || e.RV >= rv {
			continue
		}
		now := slices.ContainsFunc(e.Object.(*corev1.Node).Spec.Taints, func(other corev1.Taint) bool {
			return other.MatchTaint(&taint) && other.Value == taint.Value
		})
		if now && !has {
			since = e.Time
			if w := a.last(truth.Nodes, e, tainter); w != nil {
				since = w.RequestReceivedTimestamp
			}
		}
		has = now
	}
	return since
}

// tainter says whether a request may have put a taint on a node.
func tainter(w *controlplane.AuditEvent) bool {
	return w.ObjectRef.Subresource == "" && (w.Verb == "update" || w.Verb == "patch" || w.Verb == "create")
}
