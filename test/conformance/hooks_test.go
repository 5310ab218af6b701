// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hooks serves webhooks, which the apiserver trusts by the cluster's own authority.
func (c *cluster) hooks(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	certPEM, keyPEM, err := c.ServingCert("webhook")
	require.NoError(t, err)
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// reviewed is what an admission webhook was asked about.
type reviewed struct {
	hook, name string
	dry        bool
	labels     map[string]string
}

// admissions mutates and validates configmaps.
type admissions struct {
	mu   sync.Mutex
	seen []reviewed
}

func (a *admissions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var o corev1.ConfigMap
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil || json.Unmarshal(review.Request.Object.Raw, &o) != nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.seen = append(a.seen, reviewed{r.URL.Path, o.Name, review.Request.DryRun != nil && *review.Request.DryRun, o.Labels})
	a.mu.Unlock()
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: r.URL.Path == "/mutate" || o.Name != "denied"}
	if !response.Allowed {
		response.Result = &metav1.Status{Code: http.StatusForbidden}
	}
	if r.URL.Path == "/mutate" {
		value := "yes"
		if o.Name == "spoiled" {
			value = "no value!"
		}
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		response.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{"mutated":"` + value + `"}}]`)
	}
	w.Header().Set("Content-Type", jsonType)
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
}

// of returns what a hook was asked about an object.
func (a *admissions) of(hook, name string) (out []reviewed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.seen {
		if r.hook == hook && r.name == name {
			out = append(out, r)
		}
	}
	return out
}

// TestDryRunAdmission: kubernetes-api-concepts, "Make a dry-run request", with webhooks that have no side effects:
// they are called, the mutated object is what is validated, and nothing is stored.
func TestDryRunAdmission(t *testing.T) {
	c := shared(t)
	h := newHistory(t, c, "dry-run-hooks")
	client := h.client(c)
	hooks := &admissions{}
	url := c.hooks(t, hooks)
	registration := c.kube.AdmissionregistrationV1()
	mutate, validate := url+"/mutate", url+"/validate"
	none := new(admissionregistrationv1.SideEffectClassNone)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: h.namespace}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	_, err := registration.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dry-run-mutate"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.fresh-kcm.io", SideEffects: none, AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: selector, Rules: rules,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &mutate, CABundle: c.CAData()},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = registration.ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dry-run-validate"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.fresh-kcm.io", SideEffects: none, AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: selector, Rules: rules,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &validate, CABundle: c.CAData()},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, registration.MutatingWebhookConfigurations().Delete(context.Background(), "dry-run-mutate", metav1.DeleteOptions{}))
		require.NoError(t, registration.ValidatingWebhookConfigurations().Delete(context.Background(), "dry-run-validate", metav1.DeleteOptions{}))
	})
	eventually(t, "the webhooks to be in force", func() (bool, error) {
		_, err := client.Create(t.Context(), configMap("probe"), metav1.CreateOptions{DryRun: dryRun})
		return len(hooks.of("/mutate", "probe")) > 0 && len(hooks.of("/validate", "probe")) > 0, err
	})

	//conformance:api-concepts Make a dry-run request: a webhook with sideEffects None is called
	//conformance:api-concepts Generated values: what a mutating webhook sets is there
	t.Run("webhooks are called", func(t *testing.T) {
		o, err := client.Create(t.Context(), configMap("a"), metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
		mutated := map[string]string{"mutated": "yes"}
		require.Equal(t, mutated, o.GetLabels())
		require.Equal(t, []reviewed{{"/mutate", "a", true, nil}}, hooks.of("/mutate", "a"), "it is told that this is a dry run")
		require.Equal(t, []reviewed{{"/validate", "a", true, mutated}}, hooks.of("/validate", "a"), "after the mutation")
		_, err = client.Get(t.Context(), "a", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	//conformance:api-concepts Make a dry-run request: what is validated is the object after mutation
	t.Run("validated after mutation", func(t *testing.T) {
		for _, dry := range [][]string{dryRun, nil} {
			_, err := client.Create(t.Context(), configMap("spoiled"), metav1.CreateOptions{DryRun: dry})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			_, err = client.Create(t.Context(), configMap("denied"), metav1.CreateOptions{DryRun: dry})
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		}
	})
	t.Run("the real request is told apart", func(t *testing.T) {
		_, err := client.Create(t.Context(), configMap("real"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, []reviewed{{"/mutate", "real", false, nil}}, hooks.of("/mutate", "real"))
	})
}

// TestDryRunAnswers: kubernetes-api-concepts, "Make a dry-run request", the status code; "Generated values", times,
// addresses and ports: they are there, and are kept for nobody.
func TestDryRunAnswers(t *testing.T) {
	c := shared(t)
	h := newHistory(t, c, "dry-run-answers")
	client := h.client(c)
	finalized := func(t *testing.T, name string) {
		t.Helper()
		o := configMap(name)
		o.SetFinalizers([]string{"example.com/first"})
		_, err := client.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	//conformance:api-concepts Make a dry-run request: the status code is that of the real request
	t.Run("code", func(t *testing.T) {
		const path = "/api/v1/namespaces/dry-run-answers/configmaps"
		const a = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
		finalized(t, "kept")
		for _, test := range []struct {
			method, path, query, body, contentType string
			code                                   int
		}{
			{"POST", path, "", a, jsonType, http.StatusCreated},
			{"PUT", path + "/a", "", a, jsonType, http.StatusOK},
			{"PATCH", path + "/a", "", `{"data":{"a":"b"}}`, "application/merge-patch+json", http.StatusOK},
			{"PATCH", path + "/b", "fieldManager=conformance", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "application/apply-patch+yaml", http.StatusCreated},
			{"DELETE", path + "/kept", "", "", jsonType, http.StatusOK},
			{"DELETE", path + "/a", "", "", jsonType, http.StatusOK},
			{"DELETE", path, "fieldSelector=metadata.name%3Db", "", jsonType, http.StatusOK},
			{"POST", "/api/v1/namespaces", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"dry-run-answers"}}`, jsonType, http.StatusConflict},
		} {
			dry := c.raw(t, test.method, test.path+"?"+test.query+"&dryRun=All", test.body, "Content-Type", test.contentType)
			real := c.raw(t, test.method, test.path+"?"+test.query, test.body, "Content-Type", test.contentType)
			require.Equal(t, test.code, dry.code, "%s %s: %s", test.method, test.path, dry.body)
			require.Equal(t, test.code, real.code, "%s %s: %s", test.method, test.path, real.body)
			require.Equal(t, real.json(t)["kind"], dry.json(t)["kind"], "%s %s", test.method, test.path)
		}
	})
	//conformance:api-concepts Generated values: creationTimestamp and deletionTimestamp are set in the answer alone
	//conformance:api-concepts Generated values: address and node port of a Service are there, and kept for nobody
	t.Run("address and port", func(t *testing.T) {
		services := c.kube.CoreV1().Services(h.namespace)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		dry, err := services.Create(t.Context(), service, metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
		require.NotEmpty(t, dry.Spec.ClusterIP)
		require.Positive(t, dry.Spec.Ports[0].NodePort)
		require.NotEmpty(t, dry.CreationTimestamp)
		before, err := c.kube.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		again, err := services.Create(t.Context(), service, metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
		require.NotEqual(t, dry.UID, again.UID)
		after, err := c.kube.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, after.Items, len(before.Items), "an address is kept for nobody")
		real, err := services.Create(t.Context(), service, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NotEqual(t, dry.Spec.ClusterIP, real.Spec.ClusterIP)
		require.NotEqual(t, dry.Spec.Ports[0].NodePort, real.Spec.Ports[0].NodePort)
		require.NotEqual(t, dry.UID, real.UID)
		address, port := service.DeepCopy(), service.DeepCopy()
		address.Name, address.Spec.ClusterIP = "b", dry.Spec.ClusterIP
		port.Name, port.Spec.Ports[0].NodePort = "c", dry.Spec.Ports[0].NodePort
		for _, outside := range []*corev1.Service{address, port} {
			_, err := services.Create(t.Context(), outside, metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "outside the ranges, so that nobody can have it: %v", err)
		}
		_, err = c.kube.NetworkingV1().IPAddresses().Get(t.Context(), real.Spec.ClusterIP, metav1.GetOptions{})
		require.NoError(t, err, "if none of them is kept, nothing is shown")
	})
	//conformance:api-concepts Generated values: creationTimestamp and deletionTimestamp are set in the answer alone
	t.Run("time of deletion", func(t *testing.T) {
		finalized(t, "deleted")
		dry := c.raw(t, "DELETE", "/api/v1/namespaces/dry-run-answers/configmaps/deleted?dryRun=All", "").json(t)
		require.NotEmpty(t, dry["metadata"].(map[string]any)["deletionTimestamp"])
		o, err := client.Get(t.Context(), "deleted", metav1.GetOptions{})
		require.NoError(t, err)
		require.Nil(t, o.GetDeletionTimestamp())
	})
}
