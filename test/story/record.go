// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// recorded is what the stories are about, and what oracle.Unjustified needs.
var recorded = []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.PersistentVolumeClaims}

// groupLabel says which pods a story made together.
const groupLabel = "group"

// readiness counts the nodes whose Ready condition has this status.
func readiness(t *truth.Recorder, status corev1.ConditionStatus) (n int) {
	for _, e := range t.At(truth.Nodes, truth.Latest) {
		if slices.ContainsFunc(e.Object.(*corev1.Node).Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == status
		}) {
			n++
		}
	}
	return n
}

// running counts the pods of a group that run and are not being deleted.
func running(t *truth.Recorder, group string) (n int) {
	for _, e := range t.At(truth.Pods, truth.Latest) {
		pod := e.Object.(*corev1.Pod)
		if pod.Labels[groupLabel] == group && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// going counts the pods of a group that have been deleted, or are being deleted.
func going(t *truth.Recorder, group string) int {
	gone := map[types.UID]bool{}
	for _, e := range t.Events(truth.Pods) {
		pod := e.Object.(*corev1.Pod)
		if pod.Labels[groupLabel] == group && (e.Type == watch.Deleted || pod.DeletionTimestamp != nil) {
			gone[e.UID] = true
		}
	}
	return len(gone)
}

// wronged counts the pods of a group whose deletion by kube-controller-manager the node's true state did not call for.
func wronged(t *truth.Recorder, events []controlplane.AuditEvent, group string) (n int) {
	names := map[string]bool{}
	for _, e := range t.Events(truth.Pods) {
		if e.Object.(*corev1.Pod).Labels[groupLabel] == group {
			names[e.Namespace+"/"+e.Name] = true
		}
	}
	for _, v := range oracle.Unjustified(t, oracle.Writes(events), oracle.Deaths{}, oracle.TaintEvictions) {
		if v.Rule == oracle.RuleUnjustified && names[v.Object] {
			n++
		}
	}
	return n
}

// Requests are a kube-controller-manager's requests of some time.
type Requests struct {
	// NodeLeaseReads are live reads of the nodes' leases.
	NodeLeaseReads int
	// Fences are the reads by which caches are proven fresh: one item, and a budget of their own.
	Fences int
}

// CountRequests counts what an apiserver's audit log says it was asked in [from, to).
func CountRequests(auditLog string, from, to time.Time) (Requests, error) {
	requests := oracle.Requests{}
	_, err := controlplane.ReadAudit(auditLog, 0, func(e controlplane.AuditEvent) {
		for request, count := range oracle.RequestsIn([]controlplane.AuditEvent{e}, from, to) {
			requests[request] += count
		}
	})
	return Requests{
		NodeLeaseReads: requests.Sum(func(r oracle.Request) bool {
			return r.Resource == "leases" && !r.Probe && (r.Verb == "get" || r.Verb == "list")
		}),
		Fences: requests.Sum(func(r oracle.Request) bool { return r.Probe && r.Verb != "watch" }),
	}, err
}
