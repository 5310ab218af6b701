// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
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
	cborType     = "application/cbor"

	metadataType     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataListType = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// wrap encodes an object as protobuf in its envelope.
func wrap(t *testing.T, o runtime.Object) string {
	t.Helper()
	scheme := runtime.NewScheme()
	body, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), o)
	require.NoError(t, err)
	return string(body)
}

// unwrap checks protobuf's envelope, and returns what is in it.
func unwrap(t *testing.T, body []byte, apiVersion, kind string) []byte {
	t.Helper()
	require.Equal(t, "k8s\x00", string(body[:4]))
	unknown := runtime.Unknown{}
	require.NoError(t, unknown.Unmarshal(body[4:]))
	require.Equal(t, runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, unknown.TypeMeta)
	require.Empty(t, unknown.ContentEncoding, "no encoding")
	require.Empty(t, unknown.ContentType, "which means protobuf")
	return unknown.Raw
}

type answer struct {
	code        int
	contentType string
	warnings    []string
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
	got, err := c.try(t, method, path, body, headers...)
	require.NoError(t, err)
	return got
}

// try is raw for a request that may get no answer.
func (c *cluster) try(t *testing.T, method, path, body string, headers ...string) (answer, error) {
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
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Values("Warning"), out}, err
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
	//conformance:api-concepts Receiving resources as Tables: who accepts a Table gets one, with the list's version
	t.Run("table", func(t *testing.T) {
		got := c.raw(t, "GET", path, "", "Accept", tableType)
		require.Equal(t, []any{"Name", "Data", "Age"}, columns(got))
		require.NoError(t, notAfter(rv, got.json(t)["metadata"].(map[string]any)["resourceVersion"].(string)))
		both := c.raw(t, "GET", path, "", "Accept", tableType+", "+jsonType)
		require.Equal(t, "Table", both.json(t)["kind"])
	})
	//conformance:api-concepts Receiving resources as Tables: a type without columns of its own has Name and Created At
	t.Run("default table", func(t *testing.T) {
		require.Equal(t, []any{"Name", "Created At"}, columns(c.raw(t, "GET", "/api/v1/limitranges", "", "Accept", tableType)))
		require.Equal(t, []any{"Name", "Age"}, columns(c.raw(t, "GET", gaugesPath, "", "Accept", tableType)), "of a custom type")
	})
	//conformance:api-concepts Receiving resources as Tables: a type without Table is 406, and JSON where that is accepted too
	t.Run("no table", func(t *testing.T) {
		const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "POST", path, review, "Accept", tableType).code)
		both := c.raw(t, "POST", path, review, "Accept", tableType+", "+jsonType)
		require.Equal(t, http.StatusCreated, both.code)
		require.Equal(t, "SelfSubjectAccessReview", both.json(t)["kind"])
	})
	//conformance:api-concepts Alternate representations of resources: a body in protobuf is taken by POST and PUT, and answered in JSON if that is accepted
	//conformance:api-concepts Kubernetes Protobuf encoding: four bytes of magic, then an envelope with type, no encoding and no content type
	t.Run("protobuf", func(t *testing.T) {
		got := c.raw(t, "GET", path, "", "Accept", protobufType)
		require.Equal(t, protobufType, got.contentType)
		list := corev1.ConfigMapList{}
		require.NoError(t, list.Unmarshal(unwrap(t, got.body, "v1", "ConfigMapList")))
		require.Equal(t, rv, list.Items[0].ResourceVersion)

		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		made := c.raw(t, "POST", path, wrap(t, o), "Content-Type", protobufType, "Accept", jsonType)
		require.Equal(t, http.StatusCreated, made.code)
		require.Equal(t, "ConfigMap", made.json(t)["kind"])
		o.Data = map[string]string{"put": "yes"}
		put := c.raw(t, "PUT", path+"/b", wrap(t, o), "Content-Type", protobufType, "Accept", jsonType)
		require.Equal(t, http.StatusOK, put.code)
		require.Equal(t, map[string]any{"put": "yes"}, put.json(t)["data"])
	})
	//conformance:api-concepts Kubernetes Protobuf encoding: etcd has the same
	t.Run("protobuf in etcd", func(t *testing.T) {
		stored, err := c.etcd(t).Get(t.Context(), "/registry/configmaps/formats/a")
		require.NoError(t, err)
		require.Len(t, stored.Kvs, 1)
		o := corev1.ConfigMap{}
		require.NoError(t, o.Unmarshal(unwrap(t, stored.Kvs[0].Value, "v1", "ConfigMap")))
		require.Equal(t, "a", o.Name)
	})
	//conformance:api-concepts Alternate representations of resources: a watch in protobuf has one event in each frame
	t.Run("protobuf watch", func(t *testing.T) {
		last := h.write(t, "a")
		got := c.raw(t, "GET", path+"?watch=1&timeoutSeconds=1&resourceVersion="+rv, "", "Accept", protobufType)
		require.Equal(t, protobufType+";stream=watch", got.contentType)
		var versions []string
		for body := got.body; len(body) > 0; {
			size := binary.BigEndian.Uint32(body)
			e := metav1.WatchEvent{}
			require.NoError(t, e.Unmarshal(body[4:4+size]), "each frame is one event")
			body = body[4+size:]
			o := corev1.ConfigMap{}
			require.NoError(t, o.Unmarshal(unwrap(t, e.Object.Raw, "v1", "ConfigMap")))
			if o.Name == "a" {
				versions = append(versions, o.ResourceVersion)
			}
		}
		require.Equal(t, []string{last}, versions)
	})
	//conformance:api-concepts Alternate representations of resources: every built-in type has protobuf
	//conformance:api-concepts Kubernetes Protobuf encoding: four bytes of magic, then an envelope with type, no encoding and no content type
	t.Run("every built-in type has protobuf", func(t *testing.T) {
		built := 0
		for _, k := range c.types(t) {
			if !k.stored() || strings.HasSuffix(k.gvr.Group, "fresh-kcm.io") {
				continue
			}
			got := c.raw(t, "GET", k.path(), "", "Accept", protobufType)
			require.Equal(t, http.StatusOK, got.code, k)
			require.Equal(t, protobufType, got.contentType, k)
			unwrap(t, got.body, k.gvr.GroupVersion().String(), k.Kind+"List")
			built++
		}
		require.Greater(t, built, 50)
	})
	//conformance:api-concepts Alternate representations of resources: a body of another media type is 415
	t.Run("media type of the body", func(t *testing.T) {
		const o = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"media"}}`
		require.Equal(t, http.StatusUnsupportedMediaType, c.raw(t, "POST", path, o, "Content-Type", "text/csv").code)
		require.Equal(t, http.StatusUnsupportedMediaType, c.raw(t, "PUT", path+"/a", o, "Content-Type", "text/csv").code)
		require.Equal(t, http.StatusUnsupportedMediaType, c.raw(t, "PATCH", path+"/a", o, "Content-Type", jsonType).code, "which says no kind of patch")
		gauge := `{"apiVersion":"versions.fresh-kcm.io/v1","kind":"Gauge","metadata":{"name":"media"}}`
		require.Equal(t, http.StatusUnsupportedMediaType, c.raw(t, "POST", gaugesPath, gauge, "Content-Type", "text/csv").code, "of a custom type")
		require.Equal(t, http.StatusCreated, c.raw(t, "POST", path+"?dryRun=All", o).code, "it is the media type that was refused")
	})
	//conformance:besides Metadata only: PartialObjectMetadata has the versions, pages and count of the whole objects, and no more of them
	t.Run("metadata only", func(t *testing.T) {
		for _, page := range []string{"", "?limit=1"} {
			full := c.raw(t, "GET", path+page, "").json(t)
			got := c.raw(t, "GET", path+page, "", "Accept", metadataListType)
			require.Equal(t, http.StatusOK, got.code)
			list := metav1.PartialObjectMetadataList{}
			require.NoError(t, json.Unmarshal(got.body, &list))
			require.Equal(t, "PartialObjectMetadataList", list.Kind)
			require.NoError(t, notAfter(full["metadata"].(map[string]any)["resourceVersion"].(string), list.ResourceVersion), "the list is as new as one of whole objects")
			require.Equal(t, full["metadata"].(map[string]any)["remainingItemCount"] != nil, list.RemainingItemCount != nil)
			items := full["items"].([]any)
			require.Len(t, list.Items, len(items))
			for i, item := range list.Items {
				require.Equal(t, items[i].(map[string]any)["metadata"].(map[string]any)["resourceVersion"], item.ResourceVersion)
			}
			require.NotContains(t, string(got.body), `"data"`)
			require.Contains(t, string(c.raw(t, "GET", path, "").body), `"data"`, "if there is none, nothing is left out")
		}
		one := c.raw(t, "GET", path+"/a", "", "Accept", metadataType).json(t)
		require.Equal(t, "PartialObjectMetadata", one["kind"])
		require.NotContains(t, one, "data")
		custom := c.raw(t, "GET", gaugesPath, "", "Accept", metadataListType).json(t)
		require.Equal(t, "PartialObjectMetadataList", custom["kind"], "of a custom type")
		events := c.raw(t, "GET", path+"?watch=1&timeoutSeconds=1&resourceVersion="+rv, "", "Accept", metadataType)
		for documents := json.NewDecoder(bytes.NewReader(events.body)); documents.More(); {
			var e struct{ Object map[string]any }
			require.NoError(t, documents.Decode(&e))
			require.Equal(t, "PartialObjectMetadata", e.Object["kind"])
			require.NotContains(t, e.Object, "data")
		}
		require.NotEmpty(t, events.body)
	})
	//conformance:besides CBOR: it is off: 406 and 415
	t.Run("cbor", func(t *testing.T) {
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "GET", path, "", "Accept", cborType).code)
		require.Equal(t, http.StatusUnsupportedMediaType, c.raw(t, "POST", path, "\xa0", "Content-Type", cborType).code)
		require.Equal(t, jsonType, c.raw(t, "GET", path, "", "Accept", cborType+", "+jsonType).contentType)
	})
	//conformance:api-concepts API verbs: GET with watch is a watch
	//conformance:api-concepts Efficient detection of changes: a watch is a series of JSON documents
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
	//conformance:api-concepts Alternate representations of resources: what is not supported is 406, unless something else is accepted too
	//conformance:api-concepts Alternate representations of resources: a custom type has no protobuf
	t.Run("not acceptable", func(t *testing.T) {
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "GET", gaugesPath, "", "Accept", protobufType).code)
		require.Equal(t, http.StatusNotAcceptable, c.raw(t, "GET", path, "", "Accept", "text/csv").code)
		got := c.raw(t, "GET", gaugesPath, "", "Accept", protobufType+", "+jsonType)
		require.Equal(t, jsonType, got.contentType)
		require.Equal(t, "GaugeList", got.json(t)["kind"])
	})
	//conformance:api-concepts Alternate representations of resources: JSON is the default, and every type has it
	t.Run("every type has JSON", func(t *testing.T) {
		for _, k := range c.types(t) {
			if !k.stored() {
				continue
			}
			got := c.raw(t, "GET", k.path(), "", "Accept", jsonType)
			require.Equal(t, http.StatusOK, got.code, k)
			require.Equal(t, k.Kind+"List", got.json(t)["kind"])
		}
	})
}
