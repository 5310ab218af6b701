// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"
)

const (
	tableType    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
)

type answer struct {
	code        int
	contentType string
	body        []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	require.NoError(t, json.Unmarshal(a.body, &out), "%.200q", a.body)
	return out
}

// raw sends one request as it is; headers are pairs.
func (c *cluster) raw(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	client, err := rest.HTTPClientFor(c.config)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, c.config.Host+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", jsonType)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), out}
}

const gauges = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.versions.fresh-kcm.io}
spec:
  group: versions.fresh-kcm.io
  scope: Cluster
  names: {kind: Gauge, plural: gauges}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

const gaugesPath = "/apis/" + definitionGroup + "/v1/gauges"

// TestFormats: kubernetes-api-concepts, "Receiving resources as Tables", "Alternate representations of
// resources" and "Kubernetes Protobuf encoding", with a custom type, which has fewer.
func TestFormats(t *testing.T) {
	c := shared(t)
	h := newHistory(t, c, "formats")
	rv := h.write(t, "a")
	c.define(t, gauges)
	const path = "/api/v1/namespaces/formats/configmaps"
	columns := func(a answer) (names []any) {
		require.Equal(t, "Table", a.json(t)["kind"])
		for _, column := range a.json(t)["columnDefinitions"].([]any) {
			names = append(names, column.(map[string]any)["name"])
		}
		return names
	}
	t.Run("table", func(t *testing.T) {
		got := c.raw(t, "GET", path, "", "Accept", tableType)
		require.Equal(t, []any{"Name", "Data", "Age"}, columns(got))
		require.NoError(t, notAfter(rv, got.json(t)["metadata"].(map[string]any)["resourceVersion"].(string)))
		require.Equal(t, []any{"Name", "Age"}, columns(c.raw(t, "GET", gaugesPath, "", "Accept", tableType)), "the default table")
		both := c.raw(t, "GET", path, "", "Accept", tableType+", "+jsonType)
		require.Equal(t, "Table", both.json(t)["kind"])
	})
	t.Run("protobuf", func(t *testing.T) {
		got := c.raw(t, "GET", path, "", "Accept", protobufType)
		require.Equal(t, protobufType, got.contentType)
		require.Equal(t, "k8s\x00", string(got.body[:4]))
		unknown := runtime.Unknown{}
		require.NoError(t, unknown.Unmarshal(got.body[4:]))
		require.Equal(t, runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, unknown.TypeMeta)
		list := corev1.ConfigMapList{}
		require.NoError(t, list.Unmarshal(unknown.Raw))
		require.Equal(t, rv, list.Items[0].ResourceVersion)

		scheme := runtime.NewScheme()
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		body, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), o)
		require.NoError(t, err)
		made := c.raw(t, "POST", path, string(body), "Content-Type", protobufType, "Accept", jsonType)
		require.Equal(t, http.StatusCreated, made.code)
		require.Equal(t, "ConfigMap", made.json(t)["kind"])
	})
	t.Run("watch", func(t *testing.T) {
		h.write(t, "a")
		got := c.raw(t, "GET", path+"?watch=1&timeoutSeconds=1&resourceVersion="+rv, "")
		require.Equal(t, http.StatusOK, got.code)
		require.Equal(t, jsonType, got.contentType)
		var kinds []string
		for documents := json.NewDecoder(bytes.NewReader(got.body)); documents.More(); {
			var e struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			require.NoError(t, documents.Decode(&e))
			require.Equal(t, metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, e.Object.TypeMeta)
			kinds = append(kinds, e.Type+" "+e.Object.Name)
		}
		require.Subset(t, kinds, []string{"MODIFIED a"}, "a series of documents")
	})
	t.Run("not acceptable", func(t *testing.T) {
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "GET", gaugesPath, "", "Accept", protobufType).code)
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "GET", path, "", "Accept", "text/csv").code)
		got := c.raw(t, "GET", gaugesPath, "", "Accept", protobufType+", "+jsonType)
		require.Equal(t, jsonType, got.contentType)
		require.Equal(t, "GaugeList", got.json(t)["kind"])
	})
	t.Run("every type has JSON", func(t *testing.T) {
		for _, k := range c.types(t) {
			if !k.stored() {
				continue
			}
			prefix := "/apis/" + k.gvr.GroupVersion().String()
			if k.gvr.Group == "" {
				prefix = "/api/" + k.gvr.Version
			}
			got := c.raw(t, "GET", prefix+"/"+k.gvr.Resource, "", "Accept", jsonType)
			require.Equal(t, http.StatusOK, got.code, k)
			require.Equal(t, k.Kind+"List", got.json(t)["kind"])
		}
	})
}
