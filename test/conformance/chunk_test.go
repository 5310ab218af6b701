// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestChunks: kubernetes-api-concepts, "Retrieving large results sets in chunks": the pages are one snapshot
// whatever is written between them, and a watch from it misses nothing.
//
//conformance:api-concepts Efficient detection of changes: a watch from a list's version misses nothing and doubles nothing
//conformance:api-concepts Retrieving large results sets in chunks: all pages are of one version, whatever is written meanwhile
//conformance:api-concepts Retrieving large results sets in chunks: the last page has no token
//conformance:api-concepts Retrieving large results sets in chunks: remainingItemCount counts what is not in this page
func TestChunks(t *testing.T) {
	w := &world{history: newHistory(t, shared(t), "chunks")}
	for i := range 7 {
		w.write(t, fmt.Sprintf("c%d", i))
	}
	client := w.client(w.c)
	options := metav1.ListOptions{Limit: 3}
	var pages []*unstructured.UnstructuredList
	for _, remaining := range []int64{4, 1, 0} {
		list, err := client.List(t.Context(), options)
		require.NoError(t, err)
		pages = append(pages, list)
		require.Equal(t, pages[0].GetResourceVersion(), list.GetResourceVersion())
		if remaining == 0 {
			require.Nil(t, list.GetRemainingItemCount())
			require.Empty(t, list.GetContinue())
			break
		}
		require.Equal(t, &remaining, list.GetRemainingItemCount())
		options.Continue = list.GetContinue()
		w.write(t, "c0")                            // changed, already sent
		w.write(t, "c6")                            // changed, yet to be sent
		w.write(t, fmt.Sprintf("c5%d", len(pages))) // new, among those yet to be sent
	}
	at := pages[0].GetResourceVersion()
	require.Equal(t, w.at(t, at), itemsOf(t, pages...))
	require.NotEqual(t, w.at(t, at), w.at(t, w.newest()))
	w.watch(t, w.c, metav1.ListOptions{ResourceVersion: at}).expect(w.since(at))

	//conformance:api-concepts Retrieving large results sets in chunks: a list without the token shows what came after the first page
	//conformance:api-concepts Retrieving large results sets in chunks: it is missing when the list is complete
	t.Run("all at once", func(t *testing.T) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, list.GetContinue())
		require.Nil(t, list.GetRemainingItemCount(), "nothing remains")
		require.Equal(t, w.at(t, w.newest()), itemsOf(t, list), "what the pages did not show")
	})
	//conformance:api-concepts Retrieving large results sets in chunks: it is missing with a selector of labels or fields
	t.Run("selector", func(t *testing.T) {
		for _, options := range []metav1.ListOptions{{LabelSelector: "none!=x"}, {FieldSelector: "metadata.name!=c3"}} {
			options.Limit = 3
			list, err := client.List(t.Context(), options)
			require.NoError(t, err)
			require.NotEmpty(t, list.GetContinue())
			require.Nil(t, list.GetRemainingItemCount(), "with a selector the number is unknown")
		}
	})
	//conformance:api-concepts Retrieving large results sets in chunks: a broken token is refused
	t.Run("broken token", func(t *testing.T) {
		_, err := client.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: "broken"})
		isInvalid(t, err)
	})
}
