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

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

// request makes one line of an audit log.
func request(seconds float64, agent, user, verb, resource, namespace, name string, code int) controlplane.AuditEvent {
	e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: verb, UserAgent: agent, RequestReceivedTimestamp: at(seconds)}
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
	taint := []corev1.Taint{labTaint}
	truth := &Truth{
		nodes: map[string][]nodeState{"n": {
			{at: at(0)}, {at: at(10), noExecute: taint}, {at: at(20)},
		}},
		pods: map[string]*podState{"default/a": {node: "n"}, "default/b": {node: "n"}, "default/c": {node: "n"}, "default/d": {node: "n"}},
	}
	path := auditLog(t,
		request(30, kcmAgent, controller, "delete", "pods", "default", "b", 200),
		request(5, kcmAgent, controller, "delete", "pods", "default", "c", 200),
		request(15, kcmAgent, controller, "delete", "pods", "default", "a", 200),
		request(31, kcmAgent, controller, "delete", "pods", "default", "a", 200),
		request(32, kcmAgent, controller, "delete", "pods", "default", "d", 404),
		request(33, "kubectl/v1.37.0", "admin", "delete", "pods", "default", "d", 200),
		request(34, kcmAgent, controller, "delete", "nodes", "", "d", 200),
	)
	deletes, err := truth.Deletes(path)
	require.NoError(t, err)
	require.Equal(t, []Delete{
		{Time: at(5), By: "node-controller", Pod: "default/c"},
		{Time: at(15), By: "node-controller", Pod: "default/a", Justified: true},
		{Time: at(30), By: "node-controller", Pod: "default/b"},
	}, deletes)
	require.Equal(t, 2, (&EvictionResult{Deletes: deletes}).Unjustified())

	_, err = truth.Deletes(filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
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
	require.Equal(t, Requests{NodeLeaseGets: 1, NodeLeaseLists: 1, Fences: 1, ElectionRenewals: 1, Total: 6}, n)
}

func TestEvictionVerdicts(t *testing.T) {
	wrongly, rightly := Delete{}, Delete{Justified: true}
	for name, test := range map[string]struct {
		result EvictionResult
		wrong  bool
	}{
		"nothing deleted":               {EvictionResult{Pods: 2, LaterPods: 1, LaterEvicted: 1}, false},
		"one deleted wrongly":           {EvictionResult{Pods: 2, Deletes: []Delete{wrongly}, LaterPods: 1, LaterEvicted: 1}, true},
		"deletes for a real taint":      {EvictionResult{Pods: 2, Deletes: []Delete{rightly}, LaterPods: 1, LaterEvicted: 1}, false},
		"a cure that never evicts":      {EvictionResult{Pods: 2, LaterPods: 1}, true},
		"one wrong, one right, and all": {EvictionResult{Pods: 2, Deletes: []Delete{rightly, wrongly}, LaterPods: 1, LaterEvicted: 1}, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.wrong, IsWrong(&test.result)) })
	}
}

func TestNodeDeathVerdicts(t *testing.T) {
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
				Window: 2 * time.Minute, After: Requests{NodeLeaseGets: test.gets}}
			require.Equal(t, test.wrong, IsWrong(r))
		})
	}
}

func TestClaimLossVerdicts(t *testing.T) {
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
	wrong := &EvictionResult{Deletes: []Delete{{}}}
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
