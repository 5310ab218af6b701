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
	for _, c := range append(slices.Clone(Controllers()), Itself()) {
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
				require.True(t, Lists(client, p.verb, p.resource, p.subresource), "%s may %s %s/%s", client, p.verb, p.resource, p.subresource)
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

// A promise is of deletions alone: nothing else is looked at, and one of a collection is for many objects. What the page says of a
// rule for deletions is promised.
func TestAPromiseIsOfDeletions(t *testing.T) {
	for _, c := range Controllers() {
		for _, r := range c.Rules {
			if len(r.Preconditions) > 0 {
				require.Equal(t, "delete", r.Verbs, c.Name)
				require.NotContains(t, r.Resources, "/", c.Name)
			}
			if r.Verbs == "delete" {
				require.Equal(t, slices.Contains(r.Preconditions, UID), strings.Contains(r.Why, "UID"), "%s: %s", c.Name, r.Why)
				require.Equal(t, slices.Contains(r.Preconditions, ResourceVersion), strings.Contains(r.Why, "resource version"), "%s: %s", c.Name, r.Why)
			}
		}
	}
}

func TestPromises(t *testing.T) {
	pods, secrets, nodes := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "nodes"}
	all := func(controllers ...string) sets.Set[string] { return sets.New(controllers...) }
	require.Equal(t, [][]Precondition{{UID}}, Promises("pod-garbage-collector", pods, nil))
	require.Equal(t, [][]Precondition{{UID, ResourceVersion}}, Promises("token-cleaner", secrets, nil))
	require.Equal(t, [][]Precondition{{UID}}, Promises("generic-garbage-collector", schema.GroupResource{Group: "example.com", Resource: "widgets"}, nil))
	require.Equal(t, [][]Precondition{{UID}}, Promises("node-controller", pods, all("node-lifecycle-controller")))
	require.Empty(t, Promises("node-controller", pods, all("taint-eviction-controller")))
	require.Empty(t, Promises("node-controller", nodes, nil), "its rule promises nothing")
	require.Empty(t, Promises("daemon-set-controller", pods, nil), "its rule promises nothing")
	require.Empty(t, Promises("pod-garbage-collector", secrets, nil), "no rule")
	require.Empty(t, Promises("nobody", pods, nil))
}

func TestLists(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	require.False(t, Lists("daemon-set-controller", "deletecollection", pods, ""))
	require.False(t, Lists("nobody", "create", pods, ""))
	require.True(t, Lists("nobody", "create", schema.GroupResource{Resource: "events"}, ""))
	require.True(t, Lists("horizontal-pod-autoscaler", "update", schema.GroupResource{Group: "example.com", Resource: "sets"}, "scale"))
	require.True(t, Lists("daemon-set-controller", "delete", pods, ""))
	require.True(t, Lists(Process, "update", schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, ""))
	require.False(t, Lists(Process, "delete", pods, ""))
	require.Equal(t, Open, Controller{Rules: []Rule{{Mode: Exempt}, {Mode: Open}, {Mode: View}}}.Mode())
	require.Equal(t, Exempt, Controller{}.Mode())
}
