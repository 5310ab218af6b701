// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const controllerAgent = "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/0000000/system:serviceaccount:kube-system:replicaset-controller"

var auditBegan = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// request is an audit event that lasted for a millisecond.
func request(at time.Duration, verb, resource, subresource, agent string) controlplane.AuditEvent {
	e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: verb, UserAgent: agent}
	e.User.Username = "system:serviceaccount:kube-system:replicaset-controller"
	e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Namespace = resource, subresource, "ns"
	e.ResponseStatus.Code = 200
	e.RequestReceivedTimestamp = auditBegan.Add(at)
	e.StageTimestamp = e.RequestReceivedTimestamp.Add(time.Millisecond)
	return e
}

func TestRequestsIn(t *testing.T) {
	began := request(time.Second, "watch", "replicasets", "", controllerAgent+" freshness")
	began.Stage = "ResponseStarted"
	lease := request(time.Second, "update", "leases", "", controllerAgent)
	lease.ObjectRef.Namespace = "kube-system"
	refused := request(time.Second, "create", "pods", "", controllerAgent)
	refused.ResponseStatus.Code = 403
	events := []controlplane.AuditEvent{
		request(0, "create", "pods", "", controllerAgent), // before
		request(time.Second, "create", "pods", "", controllerAgent),
		refused,
		request(time.Second, "update", "replicasets", "status", controllerAgent),
		request(time.Second, "list", "replicasets", "", controllerAgent+" freshness"),
		began,
		request(time.Second, "watch", "replicasets", "", controllerAgent+" freshness"), // its end
		request(time.Second, "list", "pods", "", "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/0000000/shared-informers"),
		request(time.Second, "create", "pods", "", "kubectl/v1.37.0"),
		lease,
		request(2*time.Second, "create", "pods", "", controllerAgent), // after
	}
	of := func(verb, resource string, probe bool) Request {
		return Request{Verb: verb, Resource: resource, Namespace: "ns", Account: "replicaset-controller", Probe: probe}
	}
	got := RequestsIn(events, auditBegan.Add(time.Second), auditBegan.Add(2*time.Second))
	require.Equal(t, Requests{
		of("create", "pods", false):               2,
		of("update", "replicasets/status", false): 1,
		of("list", "replicasets", true):           1,
		of("watch", "replicasets", true):          1,
	}, got)
	require.Equal(t, 3, got.Sum(Request.Writes))
}

func TestReactions(t *testing.T) {
	kubelet := "kubelet/v1.37.0"
	conflict := request(3500*time.Millisecond, "update", "replicasets", "status", controllerAgent)
	conflict.ResponseStatus.Code = 409
	got := Reactions([]controlplane.AuditEvent{
		request(0, "update", "replicasets", "status", controllerAgent), // of nothing
		request(time.Second, "patch", "pods", "status", kubelet),
		request(1100*time.Millisecond, "update", "replicasets", "status", controllerAgent),
		request(1200*time.Millisecond, "update", "replicasets", "status", controllerAgent), // of nothing
		request(2*time.Second, "patch", "pods", "status", kubelet),                         // another one follows
		request(3*time.Second, "patch", "pods", "status", kubelet),
		request(3100*time.Millisecond, "update", "daemonsets", "status", controllerAgent),
		conflict,
		request(4*time.Second, "update", "replicasets", "status", controllerAgent),
	}, "ns", "replicasets")
	require.Equal(t, []time.Duration{100 * time.Millisecond, time.Second}, got)
}

func TestLastWrite(t *testing.T) {
	events := []controlplane.AuditEvent{
		request(time.Second, "create", "pods", "", controllerAgent),
		request(2*time.Second, "create", "events", "", controllerAgent),
		request(3*time.Second, "get", "pods", "", controllerAgent),
		request(4*time.Second, "delete", "pods", "", "kubectl/v1.37.0"),
	}
	require.Equal(t, auditBegan.Add(time.Second+time.Millisecond), LastWrite(events, "ns"))
	require.Zero(t, LastWrite(events, "other"))
}
