// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

// request makes one line of an audit log.
func request(seconds float64, agent, user, verb, resource, namespace, name string, code int) controlplane.AuditEvent {
	e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: verb, UserAgent: agent, RequestReceivedTimestamp: at(seconds), StageTimestamp: at(seconds + 0.02)}
	e.User.Username = user
	e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name = resource, namespace, name
	e.ResponseStatus.Code = code
	return e
}

func auditLog(t *testing.T, events ...controlplane.AuditEvent) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	var all []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		all = append(append(all, line...), '\n')
	}
	require.NoError(t, os.WriteFile(path, all, 0o600))
	return path
}

const (
	kcmAgent   = "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/abc/system:serviceaccount:kube-system:x"
	controller = "system:serviceaccount:kube-system:node-controller"
)

func TestDeletesAreHeldAgainstTheTruth(t *testing.T) {
	rv := uint64(0)
	events := map[schema.GroupResource][]truth.Event{}
	record := func(seconds float64, kind watch.EventType, object interface {
		runtime.Object
		metav1.Object
	}) {
		rv++
		resource := truth.Nodes
		if _, ok := object.(*corev1.Pod); ok {
			resource = truth.Pods
		}
		events[resource] = append(events[resource], truth.Event{
			Type: kind, RV: rv, Time: at(seconds), Object: object, UID: object.GetUID(), Namespace: object.GetNamespace(), Name: object.GetName(),
		})
	}
	node := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	pod := func(name string) *corev1.Pod {
		p := workload.Tolerating(name, "n", 0)
		p.UID, p.Labels[groupLabel], p.Status.Phase = types.UID(name), victims, corev1.PodRunning
		return p
	}
	record(0, watch.Added, node())
	for _, name := range []string{"a", "b", "c", "d"} {
		record(0, watch.Added, pod(name))
	}
	other := pod("other")
	other.Labels[groupLabel] = later
	record(0, watch.Added, other)
	record(5.01, watch.Deleted, pod("c"))
	record(10, watch.Modified, node(workload.Taint))
	record(15.01, watch.Deleted, pod("a"))
	record(20, watch.Modified, node())
	record(30.01, watch.Deleted, pod("b"))
	record(31.01, watch.Deleted, other)
	truth := truth.Replay(events)
	path := auditLog(t,
		request(30, kcmAgent, controller, "delete", "pods", "default", "b", 200),
		request(5, kcmAgent, controller, "delete", "pods", "default", "c", 200),
		request(10, "kubectl/v1.37.0", "admin", "patch", "nodes", "", "n", 200),
		request(15, kcmAgent, controller, "delete", "pods", "default", "a", 200),
		request(31, kcmAgent, controller, "delete", "pods", "default", "other", 200),
		request(32, kcmAgent, controller, "delete", "pods", "default", "d", 404),
		request(33, "kubectl/v1.37.0", "admin", "delete", "pods", "default", "d", 200),
	)
	var audit []controlplane.AuditEvent
	_, err := controlplane.ReadAudit(path, 0, func(e controlplane.AuditEvent) { audit = append(audit, e) })
	require.NoError(t, err)
	require.Equal(t, 2, wronged(truth, audit, victims), "b and c: a was deleted for the taint, d by somebody else")
	require.Equal(t, 1, wronged(truth, audit, later))
	require.Equal(t, 3, going(truth, victims))
	require.Equal(t, 1, running(truth, victims))
}

func TestReadiness(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) truth.Event {
		return truth.Event{Type: watch.Added, Name: name, UID: types.UID(name), Object: &corev1.Node{Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: "True"}, {Type: corev1.NodeReady, Status: ready}}}}}
	}
	record := truth.Replay(map[schema.GroupResource][]truth.Event{truth.Nodes: {
		node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue), node("a", corev1.ConditionUnknown), node("c", corev1.ConditionFalse),
	}})
	require.Equal(t, 1, readiness(record, corev1.ConditionTrue))
	require.Equal(t, 1, readiness(record, corev1.ConditionUnknown))
}

func TestCountRequests(t *testing.T) {
	path := auditLog(t,
		request(0.9, kcmAgent, controller, "get", "leases", "kube-node-lease", "n", 200),
		request(1, kcmAgent, controller, "get", "leases", "kube-node-lease", "n", 200),
		request(2, kcmAgent, controller, "list", "leases", "", "", 200),
		request(2, kcmAgent+" freshness", "system:kube-controller-manager", "list", "leases", "", "", 200),
		request(2, kcmAgent, controller, "watch", "leases", "", "", 200),
		request(3, kcmAgent, "system:kube-controller-manager", "update", "leases", "kube-system", "kube-controller-manager", 200),
		request(3, kcmAgent, "system:kube-controller-manager", "get", "leases", "kube-system", "kube-controller-manager", 200),
		request(4, kcmAgent, controller, "patch", "nodes", "", "n", 200),
		request(4, "kubectl/v1.37.0", "admin", "get", "leases", "kube-node-lease", "n", 200),
		request(5, kcmAgent, controller, "get", "leases", "kube-node-lease", "n", 200),
	)
	n, err := CountRequests(path, at(1), at(5))
	require.NoError(t, err)
	require.Equal(t, Requests{NodeLeaseReads: 2, Fences: 1}, n)

	_, err = CountRequests(filepath.Join(t.TempDir(), "none"), at(1), at(5))
	require.Error(t, err)
}

func TestEvictionOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		result EvictionResult
		wrong  bool
	}{
		"nothing deleted":          {EvictionResult{Pods: 2, LaterPods: 1, LaterEvicted: 1}, false},
		"one deleted wrongly":      {EvictionResult{Pods: 2, Unjustified: 1, LaterPods: 1, LaterEvicted: 1}, true},
		"a cure that never evicts": {EvictionResult{Pods: 2, LaterPods: 1}, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.wrong, IsWrong(&test.result)) })
	}
}

func TestNodeDeathOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		gets, marked, recovered int
		wrong                   bool
	}{
		"none":           {0, 10, 10, false},
		"within goal":    {24, 10, 10, false},
		"over goal":      {25, 10, 10, true},
		"not all marked": {0, 9, 10, true},
		"not all back":   {0, 10, 9, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &NodeDeathResult{Nodes: 10, Marked: test.marked, Recovered: test.recovered,
				Window: 2 * time.Minute, After: Requests{NodeLeaseReads: test.gets}}
			require.Equal(t, test.wrong, IsWrong(r))
		})
	}
}

func TestClaimLossOutcomes(t *testing.T) {
	good := ClaimLossResult{Recovered: true, LaterClaims: 2, LaterGone: 2}
	for name, test := range map[string]struct {
		change func(*ClaimLossResult)
		wrong  bool
	}{
		"nothing lost":              {func(*ClaimLossResult) {}, false},
		"claim lost":                {func(r *ClaimLossResult) { r.ClaimLost = true }, true},
		"pod lost":                  {func(r *ClaimLossResult) { r.PodLost = true }, true},
		"not all pods back":         {func(r *ClaimLossResult) { r.Recovered = false }, true},
		"a cure that never shrinks": {func(r *ClaimLossResult) { r.LaterGone = 1 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			test.change(&r)
			require.Equal(t, test.wrong, IsWrong(&r))
		})
	}
}

func TestProves(t *testing.T) {
	right := &EvictionResult{}
	wrong := &EvictionResult{Unjustified: 1}
	type results = map[controlplane.Arm]Result
	for name, test := range map[string]struct {
		results results
		proves  bool
	}{
		"one unprotected arm hurt":       {results{"U0": right, "U1": wrong, "P": right}, true},
		"no unprotected arm hurt":        {results{"U0": right, "U1": right, "P": right}, false},
		"only the protected one hurt":    {results{"U0": right, "P": wrong}, false},
		"nothing to compare it with":     {results{"P": right}, true},
		"nothing to compare it with (2)": {results{"P": wrong}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := eviction.Proves(test.results)
			if test.proves {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "proves nothing")
			}
		})
	}
}

func TestZoneSizes(t *testing.T) {
	require.Equal(t, 303, zoneSizes([]byte("# TYPE node_collector_zone_size gauge\n"+
		"node_collector_zone_size{zone=\":\x00:zone-a\"} 300\nnode_collector_zone_size{zone=\":\x00:zone-b\"} 3\n"+
		"node_collector_zone_health{zone=\":\x00:zone-a\"} 100\n")))
	require.Zero(t, zoneSizes(nil))
}

func TestStoriesAreComplete(t *testing.T) {
	ids := map[string]bool{}
	for _, s := range All() {
		require.False(t, ids[s.ID], s.ID)
		ids[s.ID] = true
		require.NotEmpty(t, s.Title)
		require.NotEmpty(t, s.Correct)
		require.NotEmpty(t, s.Settings(Options{Nodes: 7}))
		require.NotEmpty(t, s.Hurts)
		require.NotContains(t, s.Hurts, controlplane.ArmP, "what P does is measured, not expected")
	}
}
