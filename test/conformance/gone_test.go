// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

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
// large results sets in chunks", on expired continue tokens. etcd has been compacted, and the apiserver started
// since.
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
	etcd := h.c.etcd(t)
	now, err := etcd.Get(t.Context(), "none")
	require.NoError(t, err)
	_, err = etcd.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	server := h.c.APIServers()[0]
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))

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
	t.Run("watch", func(t *testing.T) {
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
		if err == nil {
			e := <-w.ResultChan()
			require.Equal(t, watch.Error, e.Type)
			err = apierrors.FromObject(e.Object)
		}
		isGone(t, err)
	})
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
	t.Run("begin anew", func(t *testing.T) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, h.at(t, h.newest()), itemsOf(t, list))
		w := &world{history: h}
		s := w.watch(t, h.c, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		h.write(t, "c0")
		s.expect(w.since(list.GetResourceVersion()))
	})
}
