// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const (
	requireBinariesEnv = "FRESH_KCM_REQUIRE_BINARIES"
	// limit bounds every wait for what no fault delays.
	limit = 2 * time.Minute
	tick  = 20 * time.Millisecond
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// cluster is a control plane and an admin's clients of one of its apiservers.
type cluster struct {
	*controlplane.Cluster
	config *rest.Config
	kube   kubernetes.Interface
	any    dynamic.Interface
	// patient is the same, and asks again when it is told to.
	patient dynamic.Interface
}

// sharedCluster has one apiserver and no controllers: nobody but a test writes into its namespaces.
var sharedCluster struct {
	turn sync.Mutex
	once sync.Once
	c    *controlplane.Cluster
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c := sharedCluster.c; c != nil {
		if code != 0 {
			c.Keep()
			fmt.Fprintf(os.Stderr, "the shared cluster's logs are in %s\n", c.Dir())
		}
		if err := c.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared returns the cluster that tests share which change nothing of it. One test at a time has it, until it ends, while those run
// that have clusters of their own.
func shared(t *testing.T) *cluster {
	t.Helper()
	needBinaries(t)
	t.Parallel()
	sharedCluster.turn.Lock()
	t.Cleanup(sharedCluster.turn.Unlock)
	sharedCluster.once.Do(func() {
		sharedCluster.c, sharedCluster.err = controlplane.Start(context.Background(), controlplane.Options{})
	})
	require.NoError(t, sharedCluster.err)
	return clientsOf(t, sharedCluster.c, sharedCluster.c.AdminConfig())
}

// own starts a cluster for one test, beside which others run.
func own(t *testing.T, options controlplane.Options) *cluster {
	t.Helper()
	needBinaries(t)
	t.Parallel()
	c, err := controlplane.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
			t.Logf("the cluster's logs are in %s", c.Dir())
		}
		require.NoError(t, c.Stop(context.Background()))
	})
	return clientsOf(t, c, c.AdminConfig())
}

func needBinaries(t *testing.T) {
	t.Helper()
	dir, err := controlplane.FindBinDir()
	if err == nil {
		err = controlplane.CheckBinaries(dir, controlplane.ArmP)
	}
	if err != nil && os.Getenv(requireBinariesEnv) == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("not run, the control plane's binaries are missing: %v", err)
	}
}

// once keeps client-go from asking again what was answered with Retry-After: the tests want the first answer.
type once struct{ next http.RoundTripper }

func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

func clientsOf(t *testing.T, c *controlplane.Cluster, config *rest.Config) *cluster {
	t.Helper()
	patient, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	dyn, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return &cluster{Cluster: c, config: config, kube: kube, any: dyn, patient: patient}
}

// at returns the same cluster as seen through another apiserver, or a proxy in front of one.
func (c *cluster) at(t *testing.T, config *rest.Config) *cluster {
	t.Helper()
	return clientsOf(t, c.Cluster, config)
}

// as returns the same cluster as seen by a user who is granted nothing yet.
func (c *cluster) as(t *testing.T, user string) *cluster {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = user
	return clientsOf(t, c.Cluster, config)
}

// grant lets a user do one thing with a resource of a namespace. It is in force soon after.
func (c *cluster) grant(t *testing.T, namespace, user, verb, resource string) {
	t.Helper()
	rbac, name := c.kube.RbacV1(), strings.ReplaceAll(user+"-"+verb+"-"+resource, "/", "-")
	_, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// namespace makes a namespace in which pods can be created.
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	_, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.kube.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

// define creates a custom resource definition and waits until each of its versions is served.
func (c *cluster) define(t *testing.T, manifest string) {
	t.Helper()
	crd := parse(t, manifest)
	_, err := c.any.Resource(definitions).Create(t.Context(), crd, metav1.CreateOptions{})
	require.NoError(t, err)
	c.served(t, crd)
}

// served waits until the versions of a definition answer, or do not, as it says.
func (c *cluster) served(t *testing.T, crd *unstructured.Unstructured) {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(t, err)
	for _, v := range versions {
		name, served := v.(map[string]any)["name"].(string), v.(map[string]any)["served"].(bool)
		gvr := resourceOf(crd, name)
		eventually(t, fmt.Sprintf("%s to be served: %t", gvr, served), func() (bool, error) {
			_, err := c.patient.Resource(gvr).List(t.Context(), metav1.ListOptions{Limit: 1})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
			return (err == nil) == served, nil
		})
	}
}

// resourceOf returns one version of what a definition defines.
func resourceOf(crd *unstructured.Unstructured, version string) schema.GroupVersionResource {
	plural, group, _ := strings.Cut(crd.GetName(), ".")
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

// eventually waits for a condition; an error ends the test.
func eventually(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	within(t, limit, what, done)
}

func within(t *testing.T, limit time.Duration, what string, done func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		ok, err := done()
		require.NoError(t, err, "waiting for %s", what)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			require.Fail(t, "not within "+limit.String(), "waiting for %s", what)
		case <-ticker.C:
		}
	}
}

// pkiDir is where the cluster's certificates are.
func (c *cluster) pkiDir() string { return filepath.Join(c.Dir(), "pki") }
