// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchSeconds is after how long the server ends a watch; a bookmark comes two seconds before.
const watchSeconds = 5

// follower watches a whole resource from one resource version on, over as many watches as it takes, and keeps
// what it saw. It is used by one goroutine.
type follower struct {
	*testing.T
	resource  dynamic.ResourceInterface
	last      string // resource version of the last event or bookmark
	events    []watch.Event
	bookmarks int
	stream    watch.Interface
}

func follow(t *testing.T, resource dynamic.ResourceInterface, from string) *follower {
	t.Helper()
	f := &follower{T: t, resource: resource, last: from}
	f.start()
	t.Cleanup(func() { f.stream.Stop() })
	return f
}

func (f *follower) start() {
	f.Helper()
	seconds := int64(watchSeconds)
	var err error
	f.stream, err = f.resource.Watch(f.Context(), metav1.ListOptions{ResourceVersion: f.last, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	require.NoError(f, err)
}

// next takes one event: its resource version is past the last one's, a bookmark's is not behind it. It
// returns false when the server has ended the watch.
func (f *follower) next(ctx context.Context) bool {
	f.Helper()
	select {
	case <-ctx.Done():
		require.Fail(f, "no more events", "after %s: %v", f.last, ctx.Err())
		return false
	case e, open := <-f.stream.ResultChan():
		if !open {
			return false
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		require.True(f, ok, "%s: %v", e.Type, apierrors.FromObject(e.Object))
		rv := o.GetResourceVersion()
		if e.Type == watch.Bookmark {
			require.NoError(f, notAfter(f.last, rv), "a bookmark is behind what was sent before")
			require.Empty(f, o.GetName(), "a bookmark has only a resource version")
			f.bookmarks++
		} else {
			require.NoError(f, before(f.last, rv), "%s of %s is out of order", e.Type, o.GetName())
			f.events = append(f.events, e)
		}
		f.last = rv
		return true
	}
}

// finish reads until the object's deletion and, if there will be one, a bookmark have come. The writes' resource versions must have
// come in their order, the creation first, the deletion last and past all of them.
func (f *follower) finish(name, namespace string, versions []string, bookmark bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	defer cancel()
	var seen []watch.Event
	for i := 0; ; {
		for ; i < len(f.events); i++ {
			if o := f.events[i].Object.(*unstructured.Unstructured); o.GetName() == name && o.GetNamespace() == namespace {
				seen = append(seen, f.events[i])
			}
		}
		deleted := len(seen) > 0 && seen[len(seen)-1].Type == watch.Deleted
		if deleted && (f.bookmarks > 0 || !bookmark) {
			break
		}
		if !f.next(ctx) {
			f.start()
		}
	}
	require.Equal(f, watch.Added, seen[0].Type)
	var got []string
	for _, e := range seen[:len(seen)-1] {
		got = append(got, e.Object.(*unstructured.Unstructured).GetResourceVersion())
	}
	require.Equal(f, versions[0], got[0])
	for _, rv := range versions {
		require.Contains(f, got, rv, "a write was not sent")
	}
	require.True(f, slices.IsSortedFunc(got, func(a, b string) int {
		if before(a, b) == nil {
			return -1
		}
		return 1
	}))
	require.NoError(f, before(versions[len(versions)-1], seen[len(seen)-1].Object.(*unstructured.Unstructured).GetResourceVersion()))
}
