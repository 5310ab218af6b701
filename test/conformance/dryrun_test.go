// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var dryRun = []string{metav1.DryRunAll}

func configMap(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("ConfigMap")
	o.SetName(name)
	return o
}

// TestDryRun: kubernetes-api-concepts, "Dry-run" and its subsections: the answer is that of the real request,
// nothing is stored, and no watch hears of it.
//
//conformance:api-concepts Make a dry-run request: every verb that writes has it, and answers with the object
func TestDryRun(t *testing.T) {
	w := &world{history: newHistory(t, shared(t), "dry-run")}
	newest := w.write(t, "c0")
	w.write(t, "c1")
	client := w.client(w.c)
	events := w.watch(t, w.c, metav1.ListOptions{ResourceVersion: w.newest()})
	stored, err := client.Get(t.Context(), "c0", metav1.GetOptions{})
	require.NoError(t, err)
	changed := stored.DeepCopy()
	changed.SetLabels(map[string]string{"a": "b"})

	for name, do := range map[string]func(dynamic.ResourceInterface) (*unstructured.Unstructured, error){
		"create": func(client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			o := configMap("")
			o.SetGenerateName("made-")
			o.SetLabels(map[string]string{"a": "b"})
			return client.Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun})
		},
		"update": func(client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			return client.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: dryRun})
		},
		"patch": func(client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			return client.Patch(t.Context(), "c0", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun})
		},
		"apply": func(client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			o := configMap("c0")
			o.SetLabels(map[string]string{"a": "b"})
			return client.Apply(t.Context(), "c0", o, metav1.ApplyOptions{DryRun: dryRun, FieldManager: "conformance"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := do(client)
			require.NoError(t, err)
			require.Equal(t, "b", o.GetLabels()["a"], "the answer shows what would have been stored")
			require.NotEmpty(t, o.GetUID())
			require.NotEmpty(t, o.GetName(), "generated values are there")
		})
	}
	t.Run("delete", func(t *testing.T) {
		require.NoError(t, client.Delete(t.Context(), "c0", metav1.DeleteOptions{DryRun: dryRun}))
		require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{}))
	})
	//conformance:api-concepts Make a dry-run request: defaults, admission and validation run, and refuse as they do for the real request
	t.Run("refused as the real request is", func(t *testing.T) {
		_, err := client.Create(t.Context(), configMap("c0"), metav1.CreateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		_, err = client.Create(t.Context(), configMap("No Name"), metav1.CreateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		old := changed.DeepCopy()
		old.SetResourceVersion("1")
		_, err = client.Update(t.Context(), old, metav1.UpdateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsConflict(err), "%v", err)
		require.True(t, apierrors.IsNotFound(client.Delete(t.Context(), "none", metav1.DeleteOptions{DryRun: dryRun})))
		_, err = client.Create(t.Context(), configMap("c9"), metav1.CreateOptions{DryRun: []string{"Some"}})
		isInvalid(t, err)
	})
	//conformance:api-concepts Make a dry-run request: defaults, admission and validation run, and refuse as they do for the real request
	//conformance:api-concepts Generated values: name, UID and version are not those of the real request
	t.Run("every stage runs but the last", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "none"}}}}
		pods := w.c.kube.CoreV1().Pods(w.namespace)
		one, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
		require.Equal(t, corev1.RestartPolicyAlways, one.Spec.RestartPolicy, "defaulted")
		require.Equal(t, "default", one.Spec.ServiceAccountName, "by an admission plugin")
		other, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
		require.NotEqual(t, one.Name, other.Name, "generated values are others each time")
		require.NotEqual(t, one.UID, other.UID)
		require.Empty(t, one.ResourceVersion, "which is of what is stored")
		_, err = w.c.kube.CoreV1().Pods("none").Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsNotFound(err), "refused by an admission plugin: %v", err)
	})
	//conformance:api-concepts Make a dry-run request: a request that would call a webhook with side effects fails
	t.Run("a webhook must have no side effects", func(t *testing.T) {
		hook := func(effects admissionregistrationv1.SideEffectClass) error {
			_, err := w.c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "dry-run"},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "dry-run.fresh-kcm.io", SideEffects: &effects, AdmissionReviewVersions: []string{"v1"},
					ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1")},
				}},
			}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		require.NoError(t, hook(admissionregistrationv1.SideEffectClassNone))
		require.NoError(t, hook(admissionregistrationv1.SideEffectClassNoneOnDryRun))
		require.True(t, apierrors.IsInvalid(hook(admissionregistrationv1.SideEffectClassSome)))
		require.True(t, apierrors.IsInvalid(hook(admissionregistrationv1.SideEffectClassUnknown)))
	})
	//conformance:api-concepts Dry-run: nothing is stored, and no watch hears of it
	t.Run("nothing is stored", func(t *testing.T) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, w.at(t, w.newest()), itemsOf(t, list))
		require.Equal(t, newest, itemsOf(t, list)["c0"])
		from := w.newest()
		w.write(t, "c1")
		events.expect(w.since(from)) // nothing else came before
	})
	//conformance:api-concepts Make a dry-run request: no value means that side effects are allowed
	t.Run("no value", func(t *testing.T) {
		// The document says that side effects are then allowed. They are not, which is the safe side.
		for _, query := range []string{"?dryRun", "?dryRun&pretty=true", "?dryRun="} {
			path := "/api/v1/namespaces/" + w.namespace + "/configmaps"
			got := w.c.raw(t, "POST", path+query, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"no-value"}}`)
			require.Equal(t, http.StatusUnprocessableEntity, got.code, "%s: %s", query, got.body)
			_, err := client.Get(t.Context(), "no-value", metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)
		}
	})
	//conformance:api-concepts Dry-run authorization: it takes the right for the real request, and no more
	t.Run("authorization", func(t *testing.T) {
		runner := w.client(w.c.as(t, "dry-runner"))
		patch := func(dry []string) error {
			_, err := runner.Patch(t.Context(), "c0", types.MergePatchType, []byte(`{"metadata":{"labels":{"c":"d"}}}`), metav1.PatchOptions{DryRun: dry})
			return err
		}
		require.True(t, apierrors.IsForbidden(patch(dryRun)))
		require.True(t, apierrors.IsForbidden(patch(nil)))
		w.c.grant(t, w.namespace, "dry-runner", "patch")
		eventually(t, "the role to be in force", func() (bool, error) {
			err := patch(dryRun)
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		})
		require.NoError(t, patch(nil))
	})
}
