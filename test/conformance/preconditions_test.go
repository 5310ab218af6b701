// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestPreconditions: what a write may rest on. Our deletions carry the UID, and some writes the resource version,
// of what they rest on, and are to be refused if that is another object or has changed.
func TestPreconditions(t *testing.T) {
	c := shared(t)
	h := newHistory(t, c, "preconditions")
	client := h.client(c)
	made := func(t *testing.T, name string) *unstructured.Unstructured {
		t.Helper()
		o, err := client.Create(t.Context(), configMap(name), metav1.CreateOptions{})
		require.NoError(t, err)
		return o
	}
	older, other := made(t, "older"), types.UID("00000000-0000-0000-0000-000000000000")

	//conformance:besides Preconditions: a deletion with another UID or version is 409
	t.Run("delete", func(t *testing.T) {
		o := made(t, "deleted")
		uid, rv, old := o.GetUID(), o.GetResourceVersion(), older.GetResourceVersion()
		for _, bad := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &old}, {UID: &uid, ResourceVersion: &old}, {UID: &other, ResourceVersion: &rv}} {
			err := client.Delete(t.Context(), "deleted", metav1.DeleteOptions{Preconditions: &bad})
			require.True(t, apierrors.IsConflict(err), "%v", err)
		}
		_, err := client.Get(t.Context(), "deleted", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, client.Delete(t.Context(), "deleted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}}))
		again := made(t, "deleted")
		err = client.Delete(t.Context(), "deleted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		require.True(t, apierrors.IsConflict(err), "another of its name: %v", err)
		require.NotEqual(t, uid, again.GetUID())
	})
	//conformance:besides Preconditions: an update with another UID or version is 409, with none it always goes
	t.Run("update", func(t *testing.T) {
		o := made(t, "updated")
		for name, change := range map[string]func(*unstructured.Unstructured){
			"another UID":      func(o *unstructured.Unstructured) { o.SetUID(other) },
			"an older version": func(o *unstructured.Unstructured) { o.SetResourceVersion(older.GetResourceVersion()) },
		} {
			bad := o.DeepCopy()
			bad.SetLabels(map[string]string{"a": "b"})
			change(bad)
			_, err := client.Update(t.Context(), bad, metav1.UpdateOptions{})
			require.True(t, apierrors.IsConflict(err), "%s: %v", name, err)
		}
		free := o.DeepCopy()
		free.SetUID("")
		free.SetResourceVersion("")
		free.SetLabels(map[string]string{"a": "b"})
		changed, err := client.Update(t.Context(), free, metav1.UpdateOptions{})
		require.NoError(t, err, "who names neither says that nothing matters")
		require.Equal(t, o.GetUID(), changed.GetUID())
	})
	//conformance:besides Preconditions: a patch with another version is 409, with another UID it is invalid
	t.Run("patch", func(t *testing.T) {
		o := made(t, "patched")
		patch := func(metadata string) error {
			_, err := client.Patch(t.Context(), "patched", types.MergePatchType, []byte(`{"metadata":{`+metadata+`,"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		}
		err := patch(`"uid":"` + string(other) + `"`)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.True(t, apierrors.IsConflict(patch(`"resourceVersion":"`+older.GetResourceVersion()+`"`)))
		require.NoError(t, patch(`"uid":"`+string(o.GetUID())+`","resourceVersion":"`+o.GetResourceVersion()+`"`))
	})
	//conformance:besides Preconditions: an update of a custom object must name the version
	t.Run("of a custom type", func(t *testing.T) {
		d := newDefinition(t, c, "Lock", versionOf("v1", true, true, 100))
		o := d.create(t, "v1", "a", 1)
		client := c.any.Resource(d.gvr("v1"))
		free := o.DeepCopy()
		free.SetResourceVersion("")
		_, err := client.Update(t.Context(), free, metav1.UpdateOptions{})
		require.True(t, apierrors.IsInvalid(err), "an update must name the version: %v", err)
		err = client.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
		require.True(t, apierrors.IsConflict(err), "%v", err)
	})
}

// TestFieldValidation: what becomes of fields that the server does not know.
//
//conformance:besides Field validation: Strict refuses unknown and doubled fields, Warn warns, Ignore does not; all but Strict drop them
func TestFieldValidation(t *testing.T) {
	c := shared(t)
	c.namespace(t, "field-validation")
	c.define(t, strings.ReplaceAll(gauges, "auge", "rip"))
	for name, test := range map[string]struct{ path, body string }{
		"built-in": {"/api/v1/namespaces/field-validation/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"unknown":"field","data":{"a":"1","a":"2"}}`},
		"custom":   {strings.ReplaceAll(gaugesPath, "auge", "rip"), `{"apiVersion":"versions.fresh-kcm.io/v1","kind":"Grip","metadata":{"name":"a"},"unknown":"field","other":"a","other":"b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(validation string) answer {
				return c.raw(t, "POST", test.path+"?dryRun=All&fieldValidation="+validation, test.body)
			}
			strict := post("Strict")
			require.Equal(t, http.StatusBadRequest, strict.code)
			require.Contains(t, string(strict.body), `unknown field`)
			require.Contains(t, string(strict.body), `duplicate field`)
			for _, validation := range []string{"Warn", ""} {
				warn := post(validation)
				require.Equal(t, http.StatusCreated, warn.code)
				require.GreaterOrEqual(t, len(warn.warnings), 2, "%v", warn.warnings)
				require.NotContains(t, warn.json(t), "unknown", "it is dropped")
			}
			ignore := post("Ignore")
			require.Equal(t, http.StatusCreated, ignore.code)
			require.Empty(t, ignore.warnings)
			require.NotContains(t, ignore.json(t), "unknown")
			require.Equal(t, http.StatusUnprocessableEntity, post("Sometimes").code)
		})
	}
}

// TestEvictionOfAnother: an eviction that names another UID is a conflict, which the apiserver tries again before it says so.
//
//conformance:besides Preconditions: an eviction with another UID is 409
func TestEvictionOfAnother(t *testing.T) {
	c := shared(t)
	pods := c.kube.CoreV1().Pods(c.namespace(t, "evictions"))
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	evict := func(uid types.UID) error {
		return pods.EvictV1(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
	}
	began := time.Now()
	err = evict("00000000-0000-0000-0000-000000000000")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.InDelta(t, 10, time.Since(began).Seconds(), 5)
	require.NoError(t, evict(pod.UID))
	_, err = pods.Get(t.Context(), "a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
