// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// isGone checks the answer for a resource version that is no longer there.
func isGone(t *testing.T, err error) {
	t.Helper()
	require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "%v", err)
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, 410, status.Status().Code)
}

// TestGone: kubernetes-api-concepts, `"410 Gone" responses`, "Efficient detection of changes" and "Retrieving
// large results sets in chunks", on expired continue tokens. First the apiserver has started anew, so that
// its watch cache lacks what etcd has; then etcd is compacted.
func TestGone(t *testing.T) {
	h := newHistory(t, own(t, controlplane.Options{}), "gone")
	var old string
	for i := range 5 {
		old = h.write(t, fmt.Sprintf("c%d", i))
	}
	client := h.client(h.c)
	first, err := client.List(t.Context(), metav1.ListOptions{Limit: pageSize})
	require.NoError(t, err)
	for i := range 5 {
		h.write(t, fmt.Sprintf("c%d", i+1))
	}
	server := h.c.APIServers()[0]
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	eventOf := func(name string) string {
		e, err := h.c.kube.CoreV1().Events(h.namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: h.namespace, Name: name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		return e.ResourceVersion
	}
	oldEvent := eventOf("one")
	// A watch from oldEvent begins at the next revision. That one must be compacted too, so it cannot be etcd's last.
	eventOf("two")
	eventOf("three")
	watched := func(t *testing.T, client dynamic.ResourceInterface, rv string) error {
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv})
		if err != nil {
			return err
		}
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		return nil
	}
	events := h.c.any.Resource(configMaps.GroupVersion().WithResource("events")).Namespace(h.namespace)
	//conformance:api-concepts 410 Gone responses: a version that the watch cache lacks is 410 for watches, though etcd has it
	t.Run("watch cache", func(t *testing.T) {
		isGone(t, watched(t, client, old))
		list, err := client.List(t.Context(), metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: exactMatch})
		require.NoError(t, err, "etcd has it")
		require.Equal(t, h.at(t, old), itemsOf(t, list))
		require.NoError(t, watched(t, events, oldEvent), "there is no watch cache of events")
	})
	etcd := h.c.etcd(t)
	now, err := etcd.Get(t.Context(), "none")
	require.NoError(t, err)
	_, err = etcd.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)

	//conformance:list-semantics Add a ResourceVersionMatch query parameter: a version that is not there any more is 410 for Exact
	//conformance:api-concepts 410 Gone responses: a version that etcd has compacted is 410 for exact lists, tokens and watches
	t.Run("exact", func(t *testing.T) {
		for _, options := range []metav1.ListOptions{
			{ResourceVersion: old, ResourceVersionMatch: exactMatch},
			{ResourceVersion: old, ResourceVersionMatch: exactMatch, Limit: pageSize},
			{ResourceVersion: old, Limit: pageSize},
		} {
			_, err := client.List(t.Context(), options)
			isGone(t, err)
		}
	})
	//conformance:api-concepts 410 Gone responses: not older than is served from what is there
	t.Run("not older than", func(t *testing.T) {
		for _, options := range []metav1.ListOptions{
			{ResourceVersion: old},
			{ResourceVersion: old, ResourceVersionMatch: notOlderMatch},
			{ResourceVersion: old, ResourceVersionMatch: notOlderMatch, Limit: pageSize},
		} {
			list, err := client.List(t.Context(), options)
			require.NoError(t, err)
			require.NoError(t, notAfter(h.newest(), list.GetResourceVersion()))
		}
		_, err := client.Get(t.Context(), "c0", metav1.GetOptions{ResourceVersion: old})
		require.NoError(t, err)
	})
	//conformance:api-concepts Efficient detection of changes: history that is gone is 410: relist, and watch from there
	//conformance:api-concepts 410 Gone responses: a version that etcd has compacted is 410 for exact lists, tokens and watches
	t.Run("watch", func(t *testing.T) {
		isGone(t, watched(t, client, old))
		isGone(t, watched(t, events, oldEvent))
	})
	//conformance:api-concepts Retrieving large results sets in chunks: a token that has expired is 410
	//conformance:api-concepts 410 Gone responses: a version that etcd has compacted is 410 for exact lists, tokens and watches
	t.Run("continue", func(t *testing.T) {
		_, err := client.List(t.Context(), metav1.ListOptions{Limit: pageSize, Continue: first.GetContinue()})
		isGone(t, err)
		var status apierrors.APIStatus
		require.ErrorAs(t, err, &status)
		token := status.Status().ListMeta.Continue
		require.NotEmpty(t, token, "the server offers to go on at another resource version")
		rest, err := client.List(t.Context(), metav1.ListOptions{Continue: token})
		require.NoError(t, err)
		require.NoError(t, notAfter(h.newest(), rest.GetResourceVersion()))
		want := maps.Clone(h.at(t, h.newest()))
		for _, item := range first.Items {
			delete(want, item.GetName())
		}
		require.Equal(t, want, itemsOf(t, rest))
	})
	//conformance:api-concepts Retrieving large results sets in chunks: then the client begins anew, or omits the limit
	t.Run("after an expired token", func(t *testing.T) {
		options := metav1.ListOptions{Limit: pageSize}
		var pages []*unstructured.UnstructuredList
		for len(pages) == 0 || options.Continue != "" {
			page, err := client.List(t.Context(), options)
			require.NoError(t, err)
			pages, options.Continue = append(pages, page), page.GetContinue()
		}
		require.Greater(t, len(pages), 1)
		require.Equal(t, h.at(t, h.newest()), itemsOf(t, pages...), "from the beginning")
		all, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, h.at(t, h.newest()), itemsOf(t, all), "without limit")
	})
	//conformance:api-concepts Efficient detection of changes: history that is gone is 410: relist, and watch from there
	t.Run("begin again", func(t *testing.T) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, h.at(t, h.newest()), itemsOf(t, list))
		w := &world{history: h}
		s := w.watch(t, h.c, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		h.write(t, "c0")
		s.expect(w.since(list.GetResourceVersion()))
	})
}
