// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/pkg/wire"
)

func (c *clientWatch) versions(t *testing.T) []string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, e := range c.events {
		m, err := meta.Accessor(e.Object)
		require.NoError(t, err)
		out = append(out, m.GetResourceVersion())
	}
	return out
}

func TestOpaqueVersionsCannotBeCompared(t *testing.T) {
	_, err := resourceversion.CompareResourceVersion(toOpaque("7"), toOpaque("8"))
	require.Error(t, err)
	for _, version := range []string{"", "0", "7", "18446744073709551615"} {
		require.Equal(t, version, fromOpaque(Event{}, toOpaque(version)))
	}
	for _, version := range []string{"", "v-", "v-x", "x", "v--1"} {
		require.Equal(t, version, fromOpaque(Event{}, version), "not one of ours")
		require.Equal(t, version, toOpaque(version))
	}
}

func TestOpaqueRVsInWatches(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		h.api.send("nodes", watch.Added, "n1")
		n.require(t, "ADDED n1")

		f := h.inject(t, Target{Resource: nodes}, OpaqueRVs{})
		h.api.send("nodes", watch.Modified, "n1")
		h.api.send("nodes", watch.Bookmark, "")
		h.api.sendPadded("nodes", watch.Deleted, "n1", 300, nil)
		n.require(t, "ADDED n1", "MODIFIED n1", "BOOKMARK", "DELETED n1")
		require.Equal(t, []string{"101", "v-102", "v-103", "v-104"}, n.versions(t), "opaque from the injection on")
		require.Len(t, n.last().Object.(*corev1.Node).Annotations["padding"], 300, "the rest of the object is kept")
		h.requireUntouched(t, p)
		for _, v := range p.versions(t) {
			require.NotContains(t, v, opaquePrefix)
		}
		s := f.Stats()
		require.Equal(t, map[watch.EventType]int{watch.Modified: 1, watch.Bookmark: 1, watch.Deleted: 1}, s.Rewritten.Events)
		require.Empty(t, s.FirstHeldRV, "nothing was held")
		require.Equal(t, "104", h.proxy.Progress(nodes).Sent.ResourceVersion, "progress counts in the backend's numbers")

		f.Clear()
		h.api.send("nodes", watch.Added, "n1")
		n.require(t, "ADDED n1", "MODIFIED n1", "BOOKMARK", "DELETED n1", "ADDED n1")
		require.NotContains(t, n.versions(t)[4], opaquePrefix)
		h.watchWith(t, "nodes", metav1.ListOptions{ResourceVersion: "v-104", AllowWatchBookmarks: true})
		open := h.api.open("nodes")
		require.Contains(t, open[len(open)-1].query, "resourceVersion=104", "what the client still has is understood")
	})
}

func TestOpaqueRVsMixedWithNumbers(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		f := h.inject(t, Target{Resource: nodes}, OpaqueRVs{Match: func(e Event) bool { return e.Name == "n2" }})
		yes := true
		n := h.watchWith(t, "nodes", metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		h.api.send("nodes", watch.Added, "n1")
		h.api.send("nodes", watch.Added, "n2")
		h.api.sendPadded("nodes", watch.Bookmark, "", 0, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		n.require(t, "ADDED n1", "ADDED n2", "BOOKMARK")
		require.Equal(t, []string{"101", "v-102", "103"}, n.versions(t))
		require.Equal(t, 1, f.Stats().Rewritten.Frames)

		hold := h.inject(t, Target{Resource: nodes}, Hold{})
		h.api.send("nodes", watch.Modified, "n2")
		eventually(t, "the event is held", func() bool { return hold.Stats().Held.Frames == 1 })
		require.Equal(t, "104", hold.Stats().LastHeldRV)
		hold.Clear()
		n.require(t, "ADDED n1", "ADDED n2", "BOOKMARK", "MODIFIED n2")
		require.Equal(t, "v-104", n.versions(t)[3], "it composes with a hold")
	})
}

func TestOpaqueRVsInRequests(t *testing.T) {
	pod := func(name, rv string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: rv, Labels: map[string]string{"a": "<b>"}},
			Spec:       corev1.PodSpec{NodeName: "n", Priority: ptr.To[int32](7)},
		}
	}
	inBothEncodings(t, func(t *testing.T, h *harness) {
		var got runtime.Object
		var query string
		var answer runtime.Object
		h.api.stored = func(r *http.Request, body runtime.Object) runtime.Object {
			got, query = body, r.URL.RawQuery
			return answer
		}
		f := h.inject(t, Target{Resource: pods}, OpaqueRVs{})
		client, ctx := h.client.CoreV1().Pods("default"), t.Context()

		answer = &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*pod("a", "3"), *pod("b", "4")}}
		list, err := client.List(ctx, metav1.ListOptions{ResourceVersion: "v-8"})
		require.NoError(t, err)
		require.Equal(t, "resourceVersion=8", query)
		want := &corev1.PodList{TypeMeta: list.TypeMeta, ListMeta: metav1.ListMeta{ResourceVersion: "v-9"}, Items: []corev1.Pod{*pod("a", "v-3"), *pod("b", "v-4")}}
		require.Equal(t, want, list)

		answer = pod("a", "5")
		one, err := client.Get(ctx, "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, pod("a", "v-5"), withoutType(one))

		answer = pod("a", "6")
		one, err = client.Create(ctx, pod("a", ""), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, pod("a", "v-6"), withoutType(one))
		require.Empty(t, got.(*corev1.Pod).ResourceVersion)

		answer = pod("a", "7")
		for name, write := range map[string]func() (*corev1.Pod, error){
			"update":        func() (*corev1.Pod, error) { return client.Update(ctx, pod("a", "v-6"), metav1.UpdateOptions{}) },
			"update status": func() (*corev1.Pod, error) { return client.UpdateStatus(ctx, pod("a", "v-6"), metav1.UpdateOptions{}) },
		} {
			one, err = write()
			require.NoError(t, err, name)
			require.Equal(t, "v-7", one.ResourceVersion, name)
			require.Equal(t, pod("a", "6"), withoutType(got.(*corev1.Pod)), name)
		}

		for kind, patch := range map[types.PatchType]string{
			types.StrategicMergePatchType: `{"metadata":{"resourceVersion":"v-6"}}`,
			types.MergePatchType:          `{"metadata":{"resourceVersion":"v-6"}}`,
			types.JSONPatchType:           `[{"op":"test","path":"/metadata/resourceVersion","value":"v-6"},{"op":"remove","path":"/spec"}]`,
		} {
			one, err = client.Patch(ctx, "a", kind, []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err, kind)
			require.Equal(t, "v-7", one.ResourceVersion, kind)
			require.JSONEq(t, strings.ReplaceAll(patch, "v-6", "6"), string(got.(*runtime.Unknown).Raw), kind)
		}

		err = client.Delete(ctx, "a", *metav1.NewRVDeletionPrecondition("v-6"))
		require.NoError(t, err)
		require.Equal(t, "6", *got.(*metav1.DeleteOptions).Preconditions.ResourceVersion)
		err = client.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: metav1.NewRVDeletionPrecondition("v-6"),
		})
		require.NoError(t, err)
		require.Equal(t, "6", *got.(*policyv1.Eviction).DeleteOptions.Preconditions.ResourceVersion)

		answer = &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{UID: "a"}}
		require.NoError(t, client.Delete(ctx, "a", metav1.DeleteOptions{}), "a Status has no version")
		require.Equal(t, 7+len("ab"), f.Stats().Requests-1, "list, get, create, update twice, patch three times, delete and evict were changed")

		f.Clear()
		answer = pod("a", "8")
		one, err = client.Update(ctx, pod("a", "v-7"), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, "8", one.ResourceVersion)
		require.Equal(t, "7", got.(*corev1.Pod).ResourceVersion)
	})
}

func TestRewriteMetadataLists(t *testing.T) {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "9"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "3"}}},
	}
	opaque := func(_ Event, version string) string { return toOpaque(version) }
	var got metav1.PartialObjectMetadataList
	raw, err := json.Marshal(list)
	require.NoError(t, err)
	raw, err = rewriteBody(runtime.ContentTypeJSON, raw, opaque)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &got))
	list.ResourceVersion, list.Items[0].ResourceVersion = "v-9", "v-3"
	require.Equal(t, list, &got)

	var buf bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(nil, nil).Encode(list, &buf))
	raw, err = rewriteBody(runtime.ContentTypeProtobuf+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", buf.Bytes(), fromOpaque)
	require.NoError(t, err)
	var envelope runtime.Unknown
	require.NoError(t, envelope.Unmarshal(bytes.TrimPrefix(raw, wire.Prefix)))
	require.NoError(t, got.Unmarshal(envelope.Raw))
	require.Equal(t, "9", got.ResourceVersion)
	require.Equal(t, "3", got.Items[len(got.Items)-1].ResourceVersion)
}

func TestRewriteRefusesWhatItCannotRead(t *testing.T) {
	for contentType, body := range map[string]string{
		runtime.ContentTypeProtobuf:        "k8s\x00\xff",
		runtime.ContentTypeProtobuf + "; ": "no prefix",
		runtime.ContentTypeJSON:            `{"metadata":7}`,
		"application/json-patch+json":      "{}",
		runtime.ContentTypeCBOR:            "\xd9\xd9\xf7\xa0",
	} {
		_, err := rewriteBody(contentType, []byte(body), fromOpaque)
		require.Error(t, err, contentType)
	}
	for _, body := range []string{`null`, `[]`, ``, `{"metadata":null}`, `{"kind":"Table","metadata":{"resourceVersion":"v-1"}}`} {
		out, err := rewriteBody(runtime.ContentTypeJSON, []byte(body), fromOpaque)
		require.NoError(t, err)
		if json.Valid([]byte(body)) {
			require.JSONEq(t, body, string(out))
		}
	}
}

func withoutType(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{}
	return pod
}
