// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

func TestEveryControllerIsListed(t *testing.T) {
	var listed []string
	for _, c := range Controllers() {
		listed = append(listed, c.Name)
	}
	known := slices.DeleteFunc(app.KnownControllers(), func(name string) bool { return cloud.Has(name) })
	require.ElementsMatch(t, known, listed)
}

// cloud are names that are known for their flags' sake. What they named is not in this process any more.
var cloud = sets.New("service-lb-controller", "node-route-controller", "cloud-node-lifecycle-controller")

func TestARuleIsWhole(t *testing.T) {
	for _, c := range Controllers() {
		for _, r := range c.Rules {
			require.NotEmpty(t, r.Verbs, c.Name)
			require.NotEmpty(t, r.Resources, c.Name)
			require.Contains(t, order, r.Mode, c.Name)
			require.True(t, strings.HasSuffix(r.Why, "."), "%s: %q", c.Name, r.Why)
		}
	}
}

// elsewhere are clients that upstream's roles name and that are not in this process.
var elsewhere = sets.New("route-controller", "service-controller")

// unsent says of what upstream's roles permit that no request is for it: it is what admission asks for before an object may
// block its owner's deletion, or what only others use.
func unsent(resource schema.GroupResource, subresource string) bool {
	return subresource == "finalizers" || resource.Group == "extensions" || resource.Group == "events.k8s.io" ||
		slices.Contains([]string{"pods/binding", "endpoints/restricted", "resourceclaims/binding"}, resource.Resource+"/"+subresource)
}

func TestEveryPermissionHasARule(t *testing.T) {
	roles := bootstrappolicy.ControllerRoles()
	var seen int
	for _, role := range roles {
		client := strings.TrimPrefix(role.Name, "system:controller:")
		if elsewhere.Has(client) {
			continue
		}
		for _, permission := range role.Rules {
			for _, p := range requests(permission) {
				if unsent(p.resource, p.subresource) {
					continue
				}
				seen++
				require.NotEmpty(t, Rules(client, p.verb, p.resource, p.subresource), "%s may %s %s/%s", client, p.verb, p.resource, p.subresource)
			}
		}
	}
	require.Greater(t, seen, 100)
}

type request struct {
	verb        string
	resource    schema.GroupResource
	subresource string
}

// requests are the writes that a rule of a role permits.
func requests(rule rbacv1.PolicyRule) (out []request) {
	for _, verb := range rule.Verbs {
		if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, verb) {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name, subresource, _ := strings.Cut(resource, "/")
				if group == "*" {
					group = ""
				}
				out = append(out, request{verb, schema.GroupResource{Group: group, Resource: name}, subresource})
			}
		}
	}
	return out
}

func TestRules(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	require.Empty(t, Rules("daemon-set-controller", "deletecollection", pods, ""))
	require.Empty(t, Rules("nobody", "create", pods, ""))
	require.Len(t, Rules("nobody", "create", schema.GroupResource{Resource: "events"}, ""), 1)
	require.Len(t, Rules("horizontal-pod-autoscaler", "update", schema.GroupResource{Group: "example.com", Resource: "sets"}, "scale"), 1)
	require.Equal(t, View, Rules("daemon-set-controller", "delete", pods, "")[0].Mode)
	require.Equal(t, Open, Controller{Rules: []Rule{{Mode: Exempt}, {Mode: Open}, {Mode: View}}}.Mode())
	require.Equal(t, Exempt, Controller{}.Mode())
}
