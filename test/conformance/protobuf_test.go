// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// builtIn has the Go types of everything that is built in.
var builtIn = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}()

// protobuf is whether the type has it.
func (l *life) protobuf() bool { return builtIn.Recognizes(l.kind.gvk()) }

// encode returns the object in protobuf.
func (l *life) encode(o *unstructured.Unstructured) string {
	l.Helper()
	typed, err := builtIn.New(l.kind.gvk())
	require.NoError(l, err)
	require.NoError(l, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true))
	typed.GetObjectKind().SetGroupVersionKind(l.kind.gvk())
	return wrap(l.T, typed)
}

// path is where the collection of the object's namespace is.
func (l *life) path() string {
	if l.namespace == "" {
		return l.kind.path()
	}
	return strings.TrimSuffix(l.kind.path(), l.kind.gvr.Resource) + "namespaces/" + l.namespace + "/" + l.kind.gvr.Resource
}

// send writes an object in protobuf and reads the answer in JSON.
func (l *life) send(method, path string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	l.Helper()
	got := l.c.raw(l.T, method, path, l.encode(o), "Content-Type", protobufType, "Accept", jsonType)
	answer := &unstructured.Unstructured{Object: got.json(l.T)}
	if got.code < http.StatusBadRequest {
		return answer, nil
	}
	status := &metav1.Status{}
	require.NoError(l, runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, status))
	return nil, apierrors.FromObject(status)
}

// rehearse creates the object in a dry run: all built-in admission plugins go along, it is the same in protobuf as in JSON,
// and there is none afterwards.
func (l *life) rehearse() {
	o, err := l.client().Create(l.Context(), l.object(), metav1.CreateOptions{DryRun: dryRun})
	require.NoError(l, err)
	if l.protobuf() {
		same, err := l.send(http.MethodPost, l.path()+"?dryRun=All", l.object())
		require.NoError(l, err)
		require.JSONEq(l, l.content(o), l.content(same))
	}
	_, err = l.client().Get(l.Context(), l.name, metav1.GetOptions{})
	require.True(l, apierrors.IsNotFound(err), "%v", err)
}

// generatedValue is a time, or the name that an admission plugin gives to a pod's volume.
var generatedValue = regexp.MustCompile(`kube-api-access-\w+|\d{4}-\d\d-\d\dT[\d:.]+Z`)

// content is an object without what is generated for each request: metadata, the UID wherever it is repeated, names, and times
// that are not the fixture's.
func (l *life) content(o *unstructured.Unstructured) string {
	l.Helper()
	out := maps.Clone(o.Object)
	delete(out, "metadata")
	raw, err := json.Marshal(out)
	require.NoError(l, err)
	given, err := json.Marshal(l.fixture.Object)
	require.NoError(l, err)
	return generatedValue.ReplaceAllStringFunc(strings.ReplaceAll(string(raw), string(o.GetUID()), "UID"), func(value string) string {
		if strings.Contains(string(given), value) {
			return value
		}
		return "GENERATED"
	})
}

func (l *life) updateInProtobuf() (*unstructured.Unstructured, error) {
	var old, put *unstructured.Unstructured
	o, err := l.updates("protobuf", func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		old = o.DeepCopy()
		var err error
		put, err = l.send(http.MethodPut, l.path()+"/"+l.name, o)
		return put, err
	})
	if err == nil {
		require.JSONEq(l, l.content(old), l.content(put), "nothing is lost in protobuf")
		require.Equal(l, "protobuf", put.GetLabels()["conformance-protobuf"])
	}
	return o, err
}

// TestCustomObjectInProtobuf: kubernetes-api-concepts, "Alternate representations of resources": a custom type has no
// protobuf. In 1.37 a body in protobuf is not refused: the request panics, and nothing is stored.
//
//conformance:api-concepts Alternate representations of resources: a custom type has no protobuf
func TestCustomObjectInProtobuf(t *testing.T) {
	c := shared(t)
	d := newDefinition(t, c, "Lens", versionOf("v1", true, true, 100))
	path := "/apis/" + definitionGroup + "/v1/" + d.plural
	o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: definitionGroup + "/v1", Kind: "Lens"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	got, err := c.try(t, http.MethodPost, path, wrap(t, o), "Content-Type", protobufType, "Accept", jsonType)
	require.Error(t, err, "%d: %s", got.code, got.body)
	require.Empty(t, d.sizes(t, "v1"), "nothing is stored")
	d.create(t, "v1", "a", 1)
	require.Len(t, d.sizes(t, "v1"), 1, "it is the body that was wrong")
}
