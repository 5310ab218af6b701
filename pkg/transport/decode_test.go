// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fresh-kcm/fresh-kcm/pkg/wire"
)

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"no content type": {"", "{}", "content type"},
		"another type":    {"text/html", "<html>", "neither JSON nor protobuf"},
		"broken JSON":     {"application/json", "{", "unexpected end"},
		"not protobuf":    {"application/vnd.kubernetes.protobuf", "{}", "prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(tc.contentType, []byte(tc.body))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// answers are a pod and the Status of its deletion, in every encoding, with long managed fields.
func answers(t testing.TB) map[string][]byte {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", GenerateName: "po", Namespace: "ns", UID: "uid", ResourceVersion: "123", Generation: 7, CreationTimestamp: metav1.Now(),
			Labels: map[string]string{"name": "other"}, OwnerReferences: []metav1.OwnerReference{{Name: "owner", UID: "owner-uid"}},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "manager", FieldsV1: metav1.NewFieldsV1(`{"f:x":"` + strings.Repeat("x", 1000) + `"}`)}},
		},
		Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Message: "not this"},
	}
	status := &metav1.Status{Message: "gone", Details: &metav1.StatusDetails{Name: "pod", UID: types.UID("uid")}}
	out := map[string][]byte{}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON && info.MediaType != runtime.ContentTypeProtobuf {
			continue
		}
		for name, object := range map[string]runtime.Object{"pod": pod, "status": status} {
			var body bytes.Buffer
			require.NoError(t, scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(object, &body))
			out[info.MediaType+" "+name] = body.Bytes()
		}
	}
	require.Len(t, out, 4)
	return out
}

func TestDecodeReadsWhichObjectItIs(t *testing.T) {
	for name, body := range answers(t) {
		t.Run(name, func(t *testing.T) {
			contentType, what, _ := strings.Cut(name, " ")
			got, err := decode(contentType, body)
			require.NoError(t, err)
			if what == "status" {
				require.Equal(t, "Status", got.kind)
				require.Equal(t, types.UID("uid"), got.details.UID)
				require.Equal(t, "gone", got.message)
				return
			}
			require.Equal(t, &answer{kind: "Pod", apiVersion: "v1", ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid", ResourceVersion: "123"}}, got)
		})
	}
}

// Each write of a reconcile is read: what else the object has must cost nothing.
func TestDecodeSkipsTheRest(t *testing.T) {
	body := answers(t)[runtime.ContentTypeProtobuf+" pod"]
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, err := decode(runtime.ContentTypeProtobuf, body)
		require.NoError(t, err)
	}), 8.0)
}

// What both read is read as upstream's types read it, and what those write is read.
func FuzzDecode(f *testing.F) {
	for name, body := range answers(f) {
		if strings.HasPrefix(name, runtime.ContentTypeProtobuf) {
			f.Add(body)
		}
	}
	f.Add(wire.Prefix)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decode(runtime.ContentTypeProtobuf, body)
		raw, ok := bytes.CutPrefix(body, wire.Prefix)
		var unknown runtime.Unknown
		if !ok || unknown.Unmarshal(raw) != nil {
			return
		}
		if unknown.Kind == "Status" && unknown.APIVersion == "v1" {
			var status metav1.Status
			if status.Unmarshal(unknown.Raw) == nil && err == nil {
				require.Equal(t, status.Details, got.details)
			}
			return
		}
		var object metav1.PartialObjectMetadata
		if object.Unmarshal(unknown.Raw) != nil {
			return
		}
		want := [6]string{unknown.Kind, unknown.APIVersion, object.Name, object.Namespace, string(object.UID), object.ResourceVersion}
		identity := func(a *answer) [6]string {
			return [6]string{a.kind, a.apiVersion, a.Name, a.Namespace, string(a.UID), a.ResourceVersion}
		}
		if err == nil {
			require.Equal(t, want, identity(got))
		}
		unknown.Raw, err = object.Marshal()
		require.NoError(t, err)
		again, err := unknown.Marshal()
		require.NoError(t, err)
		got, err = decode(runtime.ContentTypeProtobuf, slices.Concat(wire.Prefix, again))
		require.NoError(t, err)
		require.Equal(t, want, identity(got))
	})
}
