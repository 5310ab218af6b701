// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestUndeclared(t *testing.T) {
	write := func(user, verb, resource string) (e controlplane.AuditEvent) {
		e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name = user, verb, resource, "a"
		return e
	}
	const accounts = "system:serviceaccount:kube-system:"
	require.Empty(t, Undeclared([]controlplane.AuditEvent{
		write(accounts+"daemon-set-controller", "delete", "pods"), write(accounts+"ttl-controller", "create", "events"), write("admin", "delete", "nodes"),
	}))
	own := func(agent, verb, resource string) controlplane.AuditEvent {
		e := write("system:kube-controller-manager", verb, resource)
		e.UserAgent = "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/0123456" + agent
		return e
	}
	require.Empty(t, Undeclared([]controlplane.AuditEvent{
		own("/tokens-controller", "delete", "secrets"), own("/kube-controller-manager", "create", "serviceaccounts"), own("/fresh-kcm", "create", "events"),
	}))
	require.Len(t, Undeclared([]controlplane.AuditEvent{own("/tokens-controller", "delete", "pods"), own("/leader-election", "delete", "secrets"), own("", "create", "pods")}), 3)
	got := Undeclared([]controlplane.AuditEvent{write(accounts+"ttl-controller", "delete", "pods")})
	require.Len(t, got, 1)
	require.Equal(t, RuleUndeclared, got[0].Rule)
	require.Contains(t, got[0].Detail, "ttl-controller: delete pods")
}
