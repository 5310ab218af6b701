// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac_test shows on a real apiserver that build/manifests/rbac.yaml grants what live reads need and
// nothing else.
package rbac_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/build/manifests"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// access is one thing that one service account in kube-system, or a user whose name begins with system:, may or may not
// do. An empty namespace means all of them.
type access struct{ account, verb, group, resource, namespace string }

const (
	nodes   = "node-controller" // of node lifecycle and of taint eviction
	devices = "device-taint-eviction-controller"

	sliced    = "endpointslice-controller"
	endpoints = "endpoint-controller"
	claims    = "resource-claim-controller"
	cronJobs  = "cronjob-controller"
	volumes   = "persistent-volume-binder"
)

// accounts are those of the controllers that read live.
var accounts = []string{nodes, devices, sliced, endpoints, claims, cronJobs, volumes}

// needs are the live reads, one line for each kind.
var needs = []access{
	{nodes, "get", "", "nodes", ""},
	{nodes, "list", "", "nodes", ""},
	{nodes, "get", "coordination.k8s.io", "leases", "kube-node-lease"},
	{nodes, "list", "coordination.k8s.io", "leases", "kube-node-lease"},
	{devices, "get", "resource.k8s.io", "devicetaintrules", ""},
	{devices, "get", "resource.k8s.io", "resourceclaims", ""},
	{devices, "list", "resource.k8s.io", "resourceslices", ""},
	{sliced, "get", "", "nodes", ""},
	{endpoints, "get", "", "endpoints", ""},
	{endpoints, "get", "", "services", ""},
	{claims, "list", "", "pods", ""},
	{cronJobs, "list", "batch", "cronjobs", ""},
	{cronJobs, "get", "batch", "jobs", ""},
	{volumes, "get", "", "persistentvolumeclaims", ""},
}

// process is the user that kube-controller-manager is by itself.
const process = "system:kube-controller-manager"

// owners are read with their pods before a deletion, if their caches are large and stand still.
var owners = []access{
	{process, "list", "", "pods", ""},
	{process, "list", "", "replicationcontrollers", ""},
	{process, "list", "apps", "daemonsets", ""},
	{process, "list", "apps", "replicasets", ""},
	{process, "list", "apps", "statefulsets", ""},
	{process, "list", "batch", "jobs", ""},
}

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func TestLiveReads(t *testing.T) {
	c := start(t)
	t.Run("upstream grants them", func(t *testing.T) {
		// If a rebase makes this fail, rbac.yaml is no longer for cut-down clusters only: say so in it.
		for _, need := range slices.Concat(needs, owners) {
			require.Eventually(t, func() bool { return c.allowed(t, need) }, 2*time.Minute, 50*time.Millisecond, "%+v", need)
		}
	})
	t.Run("owners are listed, as upstream does not let the process get them", func(t *testing.T) {
		for _, get := range owners {
			get.verb = "get"
			require.False(t, c.allowed(t, get), "%+v", get)
		}
	})
	for _, account := range accounts {
		err := c.RbacV1().ClusterRoleBindings().Delete(t.Context(), "system:controller:"+account, metav1.DeleteOptions{})
		require.NoError(t, err)
	}
	t.Run("denied without the manifest", func(t *testing.T) {
		for _, need := range needs {
			require.Eventually(t, func() bool { return !c.allowed(t, need) }, 2*time.Minute, 50*time.Millisecond, "%+v", need)
		}
	})
	before := c.matrix(t)
	require.NoError(t, manifests.ApplyRBAC(t.Context(), c))
	require.NoError(t, manifests.ApplyRBAC(t.Context(), c), "a second time")
	t.Run("allowed with it", func(t *testing.T) {
		for _, need := range needs {
			require.Eventually(t, func() bool { return c.allowed(t, need) }, 2*time.Minute, 50*time.Millisecond, "%+v", need)
		}
	})
	t.Run("and nothing else", func(t *testing.T) {
		want := sets.New(needs...)
		for _, need := range needs {
			if need.namespace == "" { // in every single one, too
				for _, namespace := range namespaces {
					need.namespace = namespace
					want.Insert(need)
				}
			}
		}
		got := c.matrix(t).Difference(before)
		require.Equal(t, sorted(want), sorted(got))
	})
}

// namespaces stand for all: none, the one that a Role is for, and one that it is not for.
var namespaces = []string{"", "kube-node-lease", "default"}

type cluster struct{ kubernetes.Interface }

func start(t *testing.T) cluster {
	t.Helper()
	dir, err := controlplane.FindBinDir()
	if err == nil {
		err = controlplane.CheckBinaries(dir)
	}
	if err != nil {
		if os.Getenv("FRESH_KCM_REQUIRE_BINARIES") == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run, the control plane's binaries are missing: %v", err)
	}
	c, err := controlplane.Start(t.Context(), controlplane.Options{NoAudit: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return cluster{kubernetes.NewForConfigOrDie(c.AdminConfig())}
}

func (c cluster) allowed(t *testing.T, a access) bool {
	t.Helper()
	allowed, err := c.review(t.Context(), a)
	require.NoError(t, err)
	return allowed
}

func (c cluster) review(ctx context.Context, a access) (bool, error) {
	resource, subresource, _ := strings.Cut(a.resource, "/")
	user, groups := a.account, []string{"system:authenticated"}
	if !strings.HasPrefix(user, "system:") {
		user = "system:serviceaccount:kube-system:" + a.account
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:kube-system")
	}
	review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   user,
			Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.verb, Group: a.group, Resource: resource, Subresource: subresource, Namespace: a.namespace,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing %+v: %w", a, err)
	}
	return review.Status.Allowed, nil
}

// matrix asks for every verb on every resource that the server has.
func (c cluster) matrix(t *testing.T) sets.Set[access] {
	t.Helper()
	_, lists, err := c.Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	var all []access
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, resource := range list.APIResources {
			for _, account := range accounts {
				for _, verb := range verbs {
					for _, namespace := range namespaces {
						all = append(all, access{account, verb, gv.Group, resource.Name, namespace})
					}
				}
			}
		}
	}
	require.Greater(t, len(all), 2000)
	var mu sync.Mutex
	allowed := sets.New[access]()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for a := range sets.New(all...) {
		g.Go(func() error {
			ok, err := c.review(ctx, a)
			if ok {
				mu.Lock()
				defer mu.Unlock()
				allowed.Insert(a)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	return allowed
}

func sorted(s sets.Set[access]) []access {
	return slices.SortedFunc(slices.Values(s.UnsortedList()), func(a, b access) int {
		return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}
