// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// meaning is a semantic of the table of list.
type meaning string

const (
	mostRecent    meaning = "most recent"
	anyVersion    meaning = "any"
	notOlderThan  meaning = "not older than"
	exact         meaning = "exact"
	continueExact meaning = "continue token, exact"
	invalid       meaning = "invalid"
	badRequest    meaning = "invalid, 400"
)

const (
	unsetMatch    = metav1.ResourceVersionMatch("")
	exactMatch    = metav1.ResourceVersionMatchExact
	notOlderMatch = metav1.ResourceVersionMatchNotOlderThan
	pageSize      = 2
	valueColumn   = 2
)

// listTable is the table "resourceVersionMatch and paging parameters for list".
var listTable = []struct {
	match       metav1.ResourceVersionMatch
	limit, next bool
	means       [3]meaning // resourceVersion unset, "0", a value
}{
	{unsetMatch, false, false, [3]meaning{mostRecent, anyVersion, notOlderThan}},
	{unsetMatch, true, false, [3]meaning{mostRecent, anyVersion, exact}},
	{unsetMatch, true, true, [3]meaning{continueExact, continueExact, badRequest}},
	{exactMatch, false, false, [3]meaning{invalid, invalid, exact}},
	{exactMatch, true, false, [3]meaning{invalid, invalid, exact}},
	{notOlderMatch, false, false, [3]meaning{invalid, anyVersion, notOlderThan}},
	{notOlderMatch, true, false, [3]meaning{invalid, anyVersion, notOlderThan}},
}

// TestList: kubernetes-api-concepts, "Semantics for get and list", the table of list; "Unavailable resource
// versions"; consistent-resource-version-semantics, "Add a ResourceVersionMatch query parameter" and "Backward
// Compatibility". Both on an apiserver that has seen every write and on one that lags.
func TestList(t *testing.T) {
	w := newWorld(t, "list")
	values := map[string]string{"older": w.older, "newest": w.newest(), "future": w.future(t)}
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: NotOlderThan gives a list at the version or newer, with and without limit
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: Exact gives a list at the version, with and without limit
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: without a match: 0 means any, a version means not older without limit and exact with one
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: a match without a version is ignored
	//conformance:api-concepts Semantics for list: each cell of the table
	//conformance:api-concepts Semantics for list: a token with a version is 400
	//conformance:api-concepts Unavailable resource versions: then it is 504, and says that the version is too large
	t.Run("rows", func(t *testing.T) {
		for server, c := range w.servers {
			l := &lister{world: w, c: c, lags: server == lagging}
			for _, row := range listTable {
				for column, means := range row.means {
					columns := map[string]string{[]string{"unset", "0"}[min(column, 1)]: []string{"", "0"}[min(column, 1)]}
					if column == valueColumn {
						columns = values
					}
					for name, rv := range columns {
						t.Run(fmt.Sprintf("%s/match=%s limit=%t continue=%t/%s: %s", server, row.match, row.limit, row.next, name, means), func(t *testing.T) {
							t.Parallel()
							options := metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: row.match}
							if row.limit {
								options.Limit = pageSize
							}
							l.check(t, options, row.next, means)
						})
					}
				}
			}
		}
	})
	//conformance:api-concepts Semantics for list: a token with a match is refused
	t.Run("continue with a match", func(t *testing.T) {
		first, err := w.client(w.c).List(t.Context(), metav1.ListOptions{Limit: pageSize})
		require.NoError(t, err)
		for _, match := range []metav1.ResourceVersionMatch{exactMatch, notOlderMatch} {
			_, err := w.client(w.c).List(t.Context(), metav1.ListOptions{Limit: pageSize, Continue: first.GetContinue(), ResourceVersion: w.older, ResourceVersionMatch: match})
			isInvalid(t, err)
		}
	})
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: there are no other values
	t.Run("unknown match", func(t *testing.T) {
		_, err := w.client(w.c).List(t.Context(), metav1.ListOptions{ResourceVersion: w.older, ResourceVersionMatch: "Sometimes"})
		isInvalid(t, err)
	})
	//conformance:api-concepts Semantics for list: a version that is no number is refused
	t.Run("no resource version", func(t *testing.T) {
		for _, bad := range []string{"abc", "-1", "1.5"} {
			_, err := w.client(w.c).List(t.Context(), metav1.ListOptions{ResourceVersion: bad})
			isInvalid(t, err)
		}
	})
	//conformance:list-semantics Get support?: one object at an exact version is a list of its name
	t.Run("one object", func(t *testing.T) {
		was, is := w.at(t, w.older)["c0"], w.at(t, w.newest())["c0"]
		require.NotEqual(t, was, is)
		for rv, want := range map[string]string{w.older: was, w.newest(): is} {
			list, err := w.client(w.c).List(t.Context(), metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: exactMatch, FieldSelector: "metadata.name=c0"})
			require.NoError(t, err)
			require.Equal(t, rv, list.GetResourceVersion())
			require.Equal(t, map[string]string{"c0": want}, itemsOf(t, list))
		}
	})
	//conformance:api-concepts Semantics for list: NotOlderThan and Exact say nothing of the versions of items
	t.Run("versions of items", func(t *testing.T) {
		for _, match := range []metav1.ResourceVersionMatch{exactMatch, notOlderMatch} {
			list, err := w.client(w.c).List(t.Context(), metav1.ListOptions{ResourceVersion: w.newest(), ResourceVersionMatch: match})
			require.NoError(t, err)
			older := 0
			for _, rv := range itemsOf(t, list) {
				if before(rv, w.newest()) == nil {
					older++
				}
			}
			require.Equal(t, len(list.Items)-1, older, "all but the one that was written last are older than the version asked for")
		}
	})
	//conformance:api-concepts Unavailable resource versions: the server waits for the version to come
	t.Run("the server waits", func(t *testing.T) {
		w.answersOnRelease(t, func() error {
			list, err := w.client(w.servers[lagging]).List(t.Context(), metav1.ListOptions{ResourceVersion: w.newest(), ResourceVersionMatch: notOlderMatch})
			if err != nil {
				return err
			}
			return notAfter(w.newest(), list.GetResourceVersion())
		})
	})
}

// lister asks one server.
type lister struct {
	*world
	c    *cluster
	lags bool
}

func (l *lister) list(t *testing.T, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	t.Helper()
	return l.client(l.c).List(t.Context(), options)
}

// check does one request, and for a page those that follow it, and judges the answers.
func (l *lister) check(t *testing.T, options metav1.ListOptions, next bool, means meaning) {
	var first *unstructured.UnstructuredList
	if next {
		var err error
		first, err = l.list(t, metav1.ListOptions{Limit: pageSize})
		require.NoError(t, err)
		options.Continue = first.GetContinue()
	}
	list, err := l.list(t, options)
	switch rv := options.ResourceVersion; {
	case means == badRequest:
		require.True(t, apierrors.IsBadRequest(err), "%v", err)
		return
	case means == invalid:
		isInvalid(t, err)
		return
	case rv == l.future(t):
		isTooLarge(t, err)
		return
	case means == notOlderThan && l.lags && rv == l.newest():
		isTooLarge(t, err)
		return
	}
	if l.unavailable(t, options, first, err) {
		return
	}
	require.NoError(t, err)
	l.judge(t, list, options, first, means)
	l.complete(t, list, options, first)
}

// unavailable is whether the server may not have the resource version, and says so.
func (l *lister) unavailable(t *testing.T, options metav1.ListOptions, first *unstructured.UnstructuredList, err error) bool {
	t.Helper()
	rv := options.ResourceVersion
	if options.Continue != "" {
		rv = first.GetResourceVersion()
	}
	if err == nil || !l.lags || rv == "" || before(l.older, rv) != nil {
		return false
	}
	isTooLarge(t, err)
	return true
}

func (l *lister) judge(t *testing.T, list *unstructured.UnstructuredList, options metav1.ListOptions, first *unstructured.UnstructuredList, means meaning) {
	got := list.GetResourceVersion()
	switch means {
	case mostRecent:
		require.NoError(t, notAfter(l.newest(), got))
	case anyVersion:
		require.Equal(t, l.lags, before(got, l.newest()) == nil, "if the apiserver does not lag, nothing is tested")
	case notOlderThan:
		require.NoError(t, notAfter(options.ResourceVersion, got))
	case exact:
		require.Equal(t, options.ResourceVersion, got)
	case continueExact:
		require.Equal(t, first.GetResourceVersion(), got)
	default:
		require.Fail(t, "no rule", means)
	}
}

// complete reads the pages that are left: all are at one resource version, and together the state that was then.
func (l *lister) complete(t *testing.T, list *unstructured.UnstructuredList, options metav1.ListOptions, first *unstructured.UnstructuredList) {
	pages := []*unstructured.UnstructuredList{list}
	if first != nil {
		pages = []*unstructured.UnstructuredList{first, list}
	}
	want := l.at(t, list.GetResourceVersion())
	if options.ResourceVersion == "0" && options.Limit > 0 && list.GetContinue() == "" && len(list.Items) > pageSize {
		// The apiserver answers from its cache, as if no limit had been given.
		options.Limit = 0
	}
	for list.GetContinue() != "" {
		require.Len(t, list.Items, pageSize)
		var err error
		next := metav1.ListOptions{Limit: options.Limit, Continue: list.GetContinue()}
		list, err = l.list(t, next)
		if l.unavailable(t, next, pages[0], err) {
			return
		}
		require.NoError(t, err)
		pages = append(pages, list)
	}
	versions := map[string]bool{}
	for _, page := range pages {
		versions[page.GetResourceVersion()] = true
	}
	require.Len(t, versions, 1, "%v", slices.Collect(maps.Keys(versions)))
	require.Equal(t, want, itemsOf(t, pages...))
	if options.Limit > 0 {
		require.Greater(t, len(pages), 1, "there is more than one page")
	}
}
