// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestNames: kubernetes-api-concepts, "Object names".
//
//conformance:api-concepts Object names: one object of a kind has a name in a namespace
//conformance:api-concepts Object names: the name is free for another kind, in another namespace, and after the object's deletion
func TestNames(t *testing.T) {
	c := shared(t)
	one, two := newHistory(t, c, "names-1"), newHistory(t, c, "names-2")
	client := one.client(c)
	first, err := client.Create(t.Context(), configMap("same"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.Create(t.Context(), configMap("same"), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	_, err = two.client(c).Create(t.Context(), configMap("same"), metav1.CreateOptions{})
	require.NoError(t, err, "another namespace")
	require.NoError(t, client.Delete(t.Context(), "same", metav1.DeleteOptions{}))
	again, err := client.Create(t.Context(), configMap("same"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotEqual(t, first.GetUID(), again.GetUID())
	require.NoError(t, before(first.GetResourceVersion(), again.GetResourceVersion()))

	t.Run("another kind", func(t *testing.T) {
		secret := configMap("same")
		secret.SetKind("Secret")
		_, err := c.any.Resource(configMaps.GroupVersion().WithResource("secrets")).Namespace(one.namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	})
	//conformance:api-concepts Object names: names of kinds without namespaces are unique in the cluster
	t.Run("in the cluster", func(t *testing.T) {
		nodes := c.any.Resource(configMaps.GroupVersion().WithResource("nodes"))
		node := configMap("same")
		node.SetKind("Node")
		_, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = nodes.Create(t.Context(), node, metav1.CreateOptions{})
		require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		_, err = nodes.Namespace(one.namespace).Create(t.Context(), node, metav1.CreateOptions{})
		require.True(t, apierrors.IsNotFound(err), "it is in no namespace: %v", err)
		require.NoError(t, nodes.Delete(t.Context(), "same", metav1.DeleteOptions{}))
	})
	//conformance:api-concepts Object names: virtual types need no unique names
	t.Run("virtual types", func(t *testing.T) {
		review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
		for range 2 {
			require.Equal(t, http.StatusCreated, c.raw(t, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).code, "what cannot be read needs no name")
		}
	})
}

// TestURIs: kubernetes-api-concepts, "Resource URIs", "Kubernetes API terminology" and "API verbs".
//
//conformance:api-concepts Kubernetes API terminology: virtual types are operations, which are posted
//conformance:api-concepts API verbs: a PUT is a creation or an update
//conformance:api-concepts Resource URIs: collections, objects and subresources, with and without namespace, are where they should be
//conformance:api-concepts Resource URIs: no subresource is there for several objects
//conformance:api-concepts Single resource API: one request writes one object
func TestURIs(t *testing.T) {
	c := shared(t)
	h := newHistory(t, c, "uris")
	h.write(t, "a")
	rc := `{"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"a"},"spec":{"replicas":0,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"none"}]}}}}`
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"}}`
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"none"}]}}`
	eviction := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for _, test := range []struct {
		method, path, body string
		code               int
		kind               string
	}{
		{"POST", "/api/v1/namespaces/uris/replicationcontrollers", rc, http.StatusCreated, "ReplicationController"},
		{"GET", "/api/v1/configmaps", "", http.StatusOK, "ConfigMapList"},
		{"GET", "/api/v1/namespaces/uris/configmaps", "", http.StatusOK, "ConfigMapList"},
		{"GET", "/api/v1/namespaces/uris/configmaps/a", "", http.StatusOK, "ConfigMap"},
		{"GET", "/api/v1/namespaces/uris/replicationcontrollers/a/scale", "", http.StatusOK, "Scale"},
		{"GET", "/api/v1/replicationcontrollers/a/scale", "", http.StatusNotFound, "Status"},
		{"GET", "/api/v1/namespaces", "", http.StatusOK, "NamespaceList"},
		{"GET", "/api/v1/namespaces/uris", "", http.StatusOK, "Namespace"},
		{"GET", "/api/v1/namespaces/uris/status", "", http.StatusOK, "Namespace"},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", http.StatusOK, "ClusterRoleList"},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin", "", http.StatusOK, "ClusterRole"},
		{"GET", "/api/v1/namespaces/uris/configmaps/none", "", http.StatusNotFound, "Status"},
		// A PUT is an update, or where the type allows it a creation.
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/uris/leases/a", lease, http.StatusCreated, "Lease"},
		{"PUT", "/api/v1/namespaces/uris/configmaps/a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, http.StatusOK, "ConfigMap"},
		{"PUT", "/api/v1/namespaces/uris/configmaps/none", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"none"}}`, http.StatusNotFound, "Status"},
		// Virtual types are operations: they can only be posted.
		{"POST", reviews, review, http.StatusCreated, "SelfSubjectAccessReview"},
		{"GET", reviews, "", http.StatusMethodNotAllowed, "Status"},
		{"POST", "/api/v1/namespaces/uris/pods", pod, http.StatusCreated, "Pod"},
		{"GET", "/api/v1/namespaces/uris/pods/a/eviction", "", http.StatusMethodNotAllowed, "Status"},
		{"POST", "/api/v1/namespaces/uris/pods/a/eviction", eviction, http.StatusCreated, "Status"},
		{"GET", "/api/v1/namespaces/uris/pods/a", "", http.StatusNotFound, "Status"},
		// One object at a time.
		{"POST", "/api/v1/namespaces/uris/configmaps", `{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`, http.StatusBadRequest, "Status"},
	} {
		got := c.raw(t, test.method, test.path, test.body)
		require.Equal(t, test.code, got.code, "%s %s: %s", test.method, test.path, got.body)
		require.Equal(t, test.kind, got.json(t)["kind"], "%s %s", test.method, test.path)
	}
}

// TestCollections: kubernetes-api-concepts, "Single resource API": only list, watch and deletecollection are for
// many. The kinds of collections ("Collections") are checked for every type by TestTypes.
//
//conformance:api-concepts Collections: all items are of that kind
//conformance:api-concepts Single resource API: list, watch and deletecollection are for many
func TestCollections(t *testing.T) {
	h := newHistory(t, shared(t), "collections")
	client := h.client(h.c)
	for _, name := range []string{"a", "b", "c"} {
		h.write(t, name)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, h.at(t, h.newest()), itemsOf(t, list))
	for _, item := range list.Items {
		require.Equal(t, "ConfigMap", item.GetKind())
	}
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=b"}))
	list, err = client.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, namesOf(itemsOf(t, list)))
}

// TestConflicts: kubernetes-api-concepts, "Resource versions": a resource version passed back unmodified says
// whether the object has changed since.
//
//conformance:api-concepts Resource versions: passed back unmodified, a version says whether the object has changed since
//conformance:besides Preconditions: a deletion with another UID or version is 409
func TestConflicts(t *testing.T) {
	h := newHistory(t, shared(t), "conflicts")
	client := h.client(h.c)
	o, err := client.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	old := o.DeepCopy()
	o.SetLabels(map[string]string{"a": "b"})
	changed, err := client.Update(t.Context(), o, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = client.Update(t.Context(), old, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	same, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, changed.GetResourceVersion(), same.GetResourceVersion(), "what changes nothing is no write")
	version := old.GetResourceVersion()
	err = client.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
}

// TestFinalizers: kubernetes-api-concepts, "Resource deletion".
//
//conformance:api-concepts Resource deletion: an object with finalizers is marked, and goes with the last one
//conformance:api-concepts Resource deletion: the mark is the present time
//conformance:api-concepts Resource deletion: with the last finalizer the object is gone from etcd
//conformance:api-concepts Resource deletion: finalizers have no order
func TestFinalizers(t *testing.T) {
	h := newHistory(t, shared(t), "finalizers")
	client := h.client(h.c)
	o := configMap("a")
	o.SetFinalizers([]string{"example.com/first", "example.com/second"})
	_, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	began := time.Now().Truncate(time.Second)
	require.NoError(t, client.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	ended := time.Now()
	o, err = client.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, o.GetDeletionTimestamp())
	require.WithinRange(t, o.GetDeletionTimestamp().Time, began, ended, "in whole seconds, and on one machine")
	etcd := h.c.etcd(t)
	stored := func() int64 {
		got, err := etcd.Get(t.Context(), "/registry/configmaps/finalizers/a")
		require.NoError(t, err)
		return got.Count
	}
	finalizers := func(list string) error {
		_, err := client.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		return err
	}
	require.True(t, apierrors.IsInvalid(finalizers(`["example.com/first","example.com/second","example.com/third"]`)), "none can be added")
	require.NoError(t, finalizers(`["example.com/second","example.com/first"]`), "their order means nothing")
	require.NoError(t, finalizers(`["example.com/first"]`), "the second may go first")
	_, err = client.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored())
	require.NoError(t, finalizers(`[]`))
	require.Zero(t, stored())
	_, err = client.Get(t.Context(), "a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// TestApply: kubernetes-api-concepts, "Server Side Apply".
//
//conformance:api-concepts Server Side Apply: fields have managers, and who takes another's is refused unless by force
func TestApply(t *testing.T) {
	h := newHistory(t, shared(t), "apply")
	client := h.client(h.c)
	apply := func(manager, value string, force bool) error {
		o := configMap("a")
		o.Object["data"] = map[string]any{"key": value}
		_, err := client.Apply(t.Context(), "a", o, metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	require.NoError(t, apply("one", "1", false), "it creates")
	require.NoError(t, apply("one", "2", false), "and updates")
	require.True(t, apierrors.IsConflict(apply("two", "3", false)))
	require.NoError(t, apply("two", "3", true))
	o, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, o.GetManagedFields(), 1)
	require.Equal(t, "two", o.GetManagedFields()[0].Manager)
}
