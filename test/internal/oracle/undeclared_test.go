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
	got := Undeclared([]controlplane.AuditEvent{write(accounts+"ttl-controller", "delete", "pods")})
	require.Len(t, got, 1)
	require.Equal(t, RuleUndeclared, got[0].Rule)
	require.Contains(t, got[0].Detail, "ttl-controller: delete pods")
}
