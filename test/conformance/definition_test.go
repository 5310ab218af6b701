// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// definition is a custom resource definition that changes its versions.
type definition struct {
	c      *cluster
	plural string
}

const definitionGroup = "versions.fresh-kcm.io"

// versionOf is one entry of spec.versions; its schema allows a size up to the maximum.
func versionOf(name string, served, storage bool, maximum int) map[string]any {
	return map[string]any{
		"name": name, "served": served, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object",
			"properties": map[string]any{"spec": map[string]any{
				"type":       "object",
				"properties": map[string]any{"size": map[string]any{"type": "integer", "maximum": maximum}},
			}},
		}},
	}
}

func newDefinition(t *testing.T, c *cluster, kind string, versions ...map[string]any) *definition {
	t.Helper()
	d := &definition{c: c, plural: strings.ToLower(kind) + "s"}
	raw, err := json.Marshal(versions)
	require.NoError(t, err)
	c.define(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec: {group: %s, scope: Cluster, names: {kind: %s, plural: %s}, versions: %s}
`, d.name(), definitionGroup, kind, d.plural, raw))
	return d
}

func (d *definition) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: definitionGroup, Version: version, Resource: d.plural}
}

func (d *definition) name() string { return d.plural + "." + definitionGroup }

func (d *definition) get(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o, err := d.c.patient.Resource(definitions).Get(t.Context(), d.name(), metav1.GetOptions{})
	require.NoError(t, err)
	return o
}

// set replaces spec.versions. With dry it is only asked whether that may be.
func (d *definition) set(t *testing.T, dry bool, versions ...map[string]any) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": versions}})
	require.NoError(t, err)
	options := metav1.PatchOptions{}
	if dry {
		options.DryRun = dryRun
	}
	_, err = d.c.patient.Resource(definitions).Patch(t.Context(), d.name(), types.MergePatchType, patch, options)
	return err
}

func (d *definition) storedVersions(t *testing.T) []string {
	t.Helper()
	stored, _, err := unstructured.NestedStringSlice(d.get(t).Object, "status", "storedVersions")
	require.NoError(t, err)
	return stored
}

func (d *definition) setStored(t *testing.T, versions ...string) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"storedVersions": versions}})
	require.NoError(t, err)
	_, err = d.c.patient.Resource(definitions).Patch(t.Context(), d.name(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// object is one object in one version.
func (d *definition) object(version, name string, size int64) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	o.SetAPIVersion(definitionGroup + "/" + version)
	o.SetKind(strings.ToUpper(d.plural[:1]) + d.plural[1:len(d.plural)-1])
	o.SetName(name)
	return o
}

func (d *definition) create(t *testing.T, version, name string, size int64) *unstructured.Unstructured {
	t.Helper()
	o, err := d.c.patient.Resource(d.gvr(version)).Create(t.Context(), d.object(version, name, size), metav1.CreateOptions{})
	require.NoError(t, err)
	return o
}

func (d *definition) resize(t *testing.T, version, name string, size int64) *unstructured.Unstructured {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"size":%d}}`, size)
	o, err := d.c.patient.Resource(d.gvr(version)).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	return o
}

// sizes lists the objects through one version.
func (d *definition) sizes(t *testing.T, version string) map[string]int64 {
	t.Helper()
	list, err := d.c.patient.Resource(d.gvr(version)).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	out := map[string]int64{}
	for _, item := range list.Items {
		out[item.GetName()], _, err = unstructured.NestedInt64(item.Object, "spec", "size")
		require.NoError(t, err)
	}
	return out
}

// storedAs reads from etcd the version in which each object is stored.
func (d *definition) storedAs(t *testing.T, etcd *clientv3.Client) map[string]string {
	t.Helper()
	got, err := etcd.Get(t.Context(), "/registry/"+definitionGroup+"/"+d.plural+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	out := map[string]string{}
	for _, kv := range got.Kvs {
		var o unstructured.Unstructured
		require.NoError(t, json.Unmarshal(kv.Value, &o.Object))
		out[o.GetName()] = o.GroupVersionKind().Version
	}
	return out
}

// TestDefinition: customresources-versioning, "Proposed Design" and "Validation".
func TestDefinition(t *testing.T) {
	c := shared(t)
	v1, v2 := versionOf("v1", true, true, 100), versionOf("v2", true, false, 10)
	beta := versionOf("v1beta1", true, false, 100)
	d := newDefinition(t, c, "Valve", beta, v1, v2)
	require.Equal(t, []string{"v1"}, d.storedVersions(t))
	etcd := c.etcd(t)

	//conformance:crd-versions Goals: each version has a schema
	t.Run("each version has a schema of its own", func(t *testing.T) {
		_, err := c.patient.Resource(d.gvr("v2")).Create(t.Context(), d.object("v2", "large", 50), metav1.CreateOptions{})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		d.create(t, "v1", "large", 50)
		without := versionOf("v2", true, false, 10)
		delete(without, "schema")
		require.True(t, apierrors.IsInvalid(d.set(t, true, beta, v1, without)))
	})
	//conformance:crd-versions Storage: exactly one version is stored
	t.Run("one storage version", func(t *testing.T) {
		require.True(t, apierrors.IsInvalid(d.set(t, true, beta, versionOf("v1", true, false, 100), v2)), "none")
		require.True(t, apierrors.IsInvalid(d.set(t, true, beta, v1, versionOf("v2", true, true, 10))), "two")
		require.True(t, apierrors.IsInvalid(d.set(t, true, beta, v1, v2, v2)), "a version twice")
	})
	//conformance:crd-versions Versions: discovery orders them as they are written
	t.Run("discovery prefers the most stable version, whatever the order", func(t *testing.T) {
		group := c.raw(t, "GET", "/apis/"+definitionGroup, "").json(t)
		require.Equal(t, "v2", group["preferredVersion"].(map[string]any)["version"])
		var order []string
		for _, v := range group["versions"].([]any) {
			order = append(order, v.(map[string]any)["version"].(string))
		}
		require.Equal(t, []string{"v2", "v1", "v1beta1"}, order)
	})
	//conformance:crd-versions Goals: the storage version can be changed
	t.Run("the storage version is switched", func(t *testing.T) {
		d.create(t, "v1", "still", 1)
		still := d.create(t, "v1", "rewritten", 1)
		require.NoError(t, d.set(t, false, beta, versionOf("v1", true, false, 100), versionOf("v2", true, true, 10)))
		eventually(t, "both versions to be noted", func() (bool, error) {
			return slices.Equal(d.storedVersions(t), []string{"v1", "v2"}), nil
		})
		n := 0
		eventually(t, "new objects to be stored in the new version", func() (bool, error) {
			n++
			name := fmt.Sprintf("new-%d", n)
			d.create(t, "v1", name, 1)
			return d.storedAs(t, etcd)[name] == "v2", nil
		})
		require.Equal(t, "v1", d.storedAs(t, etcd)["still"], "what is not written stays as it was")
		same, err := c.patient.Resource(d.gvr("v2")).Patch(t.Context(), "rewritten", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.Equal(t, "v2", d.storedAs(t, etcd)["rewritten"])
		require.NoError(t, before(still.GetResourceVersion(), same.GetResourceVersion()), "a migration is a write")
	})
	//conformance:crd-versions StoredVersions: they are noted, and guard spec.versions
	//conformance:crd-versions StoredVersions: they are mutable, so that who has migrated all objects can say so
	t.Run("storedVersions guard spec.versions", func(t *testing.T) {
		stored, only := versionOf("v2", true, true, 10), versionOf("v1", true, false, 100)
		require.True(t, apierrors.IsInvalid(d.set(t, true, beta, stored)), "v1 may still be stored")
		require.NoError(t, d.set(t, true, only, stored), "v1beta1 never was")
		// The server believes who writes the status, but puts the storage version back.
		require.NoError(t, d.setStored(t, "v1"))
		require.NoError(t, d.set(t, false, only, versionOf("v2", true, true, 9)))
		require.Equal(t, []string{"v1", "v2"}, d.storedVersions(t))
		require.NoError(t, d.setStored(t, "v2"), "whoever has migrated all objects says so")
		require.NoError(t, d.set(t, true, beta, stored))
	})
	//conformance:crd-versions Served: a version that is not served is not there
	t.Run("versions that are not served", func(t *testing.T) {
		require.NoError(t, d.set(t, false, versionOf("v1", false, false, 100), versionOf("v2", true, true, 10)))
		c.served(t, d.get(t))
		require.NoError(t, d.set(t, false, versionOf("v1", false, false, 100), versionOf("v2", false, true, 10)))
		c.served(t, d.get(t))
	})
}

// TestVersionsOfOneResource: customresources-versioning, "Goals" (versions without conversion), and KEP-5504 for
// one resource under several versions: its resource versions are the same ones, and can be compared.
//
//conformance:crd-versions Goals: several versions of one resource, without conversion
func TestVersionsOfOneResource(t *testing.T) {
	c := shared(t)
	d := newDefinition(t, c, "Tap", versionOf("v1", true, true, 100), versionOf("v2", true, false, 100))
	versions := []string{"v1", "v2"}
	last := d.create(t, "v1", "a", 1).GetResourceVersion()
	watches := map[string]*stream{}
	for _, v := range versions {
		w, err := c.patient.Resource(d.gvr(v)).Watch(t.Context(), metav1.ListOptions{ResourceVersion: last})
		require.NoError(t, err)
		t.Cleanup(w.Stop)
		watches[v] = &stream{T: t, events: w.ResultChan()}
	}
	for i := range 6 {
		written := d.resize(t, versions[i%2], "a", int64(i+2))
		rv := written.GetResourceVersion()
		require.NoError(t, before(last, rv))
		for _, v := range versions {
			client := c.patient.Resource(d.gvr(v))
			o, err := client.Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, definitionGroup+"/"+v, o.GetAPIVersion())
			require.Equal(t, rv, o.GetResourceVersion())
			require.Equal(t, written.GetUID(), o.GetUID())
			require.Equal(t, written.Object["spec"], o.Object["spec"])
			list, err := client.List(t.Context(), metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: exactMatch})
			require.NoError(t, err)
			require.Equal(t, rv, list.GetResourceVersion(), "a resource version of one version is one of the others")
			require.Equal(t, change{"MODIFIED", "a", rv}, watches[v].next())
		}
		last = rv
	}
}
