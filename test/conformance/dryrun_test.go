// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
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
	//conformance:api-concepts Make a dry-run request: a patch is merged, and conflicts of patches, updates and managers are found
	t.Run("merged, and conflicts found", func(t *testing.T) {
		apply := func(field string, force bool) (*unstructured.Unstructured, error) {
			o := configMap("c0")
			o.Object["data"] = map[string]any{field: "applied"}
			return client.Apply(t.Context(), "c0", o, metav1.ApplyOptions{DryRun: dryRun, FieldManager: "another", Force: force})
		}
		patch := func(kind types.PatchType, body string) (*unstructured.Unstructured, error) {
			return client.Patch(t.Context(), "c0", kind, []byte(body), metav1.PatchOptions{DryRun: dryRun})
		}
		written, _, err := unstructured.NestedString(stored.Object, "data", "write")
		require.NoError(t, err)
		o, err := patch(types.MergePatchType, `{"data":{"more":"yes"}}`)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"write": written, "more": "yes"}, o.Object["data"], "merged with what is there")
		_, err = patch(types.JSONPatchType, `[{"op":"test","path":"/data/write","value":"another"},{"op":"remove","path":"/data/write"}]`)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		_, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"1"},"data":{"more":"yes"}}`)
		require.True(t, apierrors.IsConflict(err), "%v", err)
		_, err = apply("write", false)
		require.True(t, apierrors.IsConflict(err), "another's field: %v", err)
		o, err = apply("write", true)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"write": "applied"}, o.Object["data"])
		o, err = apply("more", false)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"write": written, "more": "applied"}, o.Object["data"])
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
		w.c.grant(t, w.namespace, "dry-runner", "patch", "configmaps")
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

// TestDryRunEffects: kubernetes-api-concepts, "Dry-run": no side effects but storage's either. A quota refuses a dry run and is
// charged for none, and etcd has nothing new of what dry runs of many types touch: objects, events, addresses, ports.
//
//conformance:api-concepts Dry-run: it has no other side effect: no quota is charged, no address or port is taken, and etcd has nothing new
func TestDryRunEffects(t *testing.T) {
	c := shared(t)
	namespace := c.namespace(t, "dry-run-effects")
	core := c.kube.CoreV1()
	one := corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("1")}
	used := corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("0")}
	quota, err := core.ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ResourceQuotaSpec{Hard: one},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: one, Used: used}
	_, err = core.ResourceQuotas(namespace).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	charged := func() int64 {
		quota, err := core.ResourceQuotas(namespace).Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		return quota.Status.Used.Name(corev1.ResourceConfigMaps, resource.DecimalSI).Value()
	}
	// The scheduler would make an event of it.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "a", Image: "none"}}}}
	_, err = core.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	write := func(dry []string) {
		_, err := core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{DryRun: dry})
		require.NoError(t, err)
		_, err = core.Services(namespace).Create(t.Context(), service, metav1.CreateOptions{DryRun: dry})
		require.NoError(t, err)
		require.NoError(t, core.Pods(namespace).EvictV1(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dry},
		}))
	}
	etcd := c.etcd(t)
	changed := func(since int64) (keys []string) {
		got, err := etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(since+1))
		require.NoError(t, err)
		for _, kv := range got.Kvs {
			key := string(kv.Key)
			if strings.Contains(key, "/"+namespace+"/") || strings.HasPrefix(key, "/registry/ranges/") || strings.HasPrefix(key, "/registry/ipaddresses/") {
				keys = append(keys, key)
			}
		}
		return keys
	}
	began, err := etcd.Get(t.Context(), "/registry/configmaps/"+namespace+"/a")
	require.NoError(t, err)
	for range 3 {
		write(dryRun)
	}
	require.Empty(t, changed(began.Header.Revision))
	require.Zero(t, charged())
	_, err = core.Pods(namespace).Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err, "evicted in a dry run only")

	write(nil)
	require.EqualValues(t, 1, charged())
	require.GreaterOrEqual(t, len(changed(began.Header.Revision)), 5, "the quota, the object, the Service, its address and its port")
	_, err = core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{DryRun: dryRun})
	require.True(t, apierrors.IsForbidden(err), "the quota refuses a dry run, too: %v", err)
}
