// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// change is one event in short.
type change struct {
	kind watch.EventType
	name string
	rv   string
}

// stream is one watch of the world's configmaps.
type stream struct {
	*testing.T
	events <-chan watch.Event
}

func (w *world) watch(t *testing.T, c *cluster, options metav1.ListOptions) *stream {
	t.Helper()
	i, err := w.client(c).Watch(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(i.Stop)
	return &stream{T: t, events: i.ResultChan()}
}

// next returns the next event.
func (s *stream) next() change {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	select {
	case e, open := <-s.events:
		require.True(s, open, "the watch has ended")
		o, ok := e.Object.(*unstructured.Unstructured)
		require.True(s, ok, "%v", apierrors.FromObject(e.Object))
		return change{e.Type, o.GetName(), o.GetResourceVersion()}
	case <-ctx.Done():
		require.Fail(s, "no event", "within %v", limit)
		return change{}
	}
}

// initial takes as many events as the state has objects: they are synthetic, and show just that state.
func (s *stream) initial(state map[string]string) {
	s.Helper()
	got := map[string]string{}
	for range state {
		c := s.next()
		require.Equal(s, watch.Added, c.kind)
		got[c.name] = c.rv
	}
	require.Equal(s, state, got)
}

// since are the changes after a resource version.
func (w *world) since(rv string) []change {
	var out []change
	for i, version := range w.versions {
		if before(rv, version) != nil {
			continue
		}
		for name, is := range w.states[i] {
			if is != version {
				continue
			}
			kind := watch.Modified
			if _, was := w.states[i-1][name]; !was {
				kind = watch.Added
			}
			out = append(out, change{kind, name, version})
		}
	}
	return out
}

// unavailable expects that the server does not have the state in time.
func (s *stream) unavailable() {
	s.Helper()
	e, open := <-s.events
	require.True(s, open)
	require.Equal(s, watch.Error, e.Type)
	isTooLarge(s.T, apierrors.FromObject(e.Object))
}

func (s *stream) expect(changes []change) {
	s.Helper()
	for _, want := range changes {
		require.Equal(s, want, s.next())
	}
}

// TestWatch: kubernetes-api-concepts, "Semantics for watch", its table, and "Unavailable resource versions".
// After the beginning that the table tells of, every watch must show every later change, in order and nothing
// else. Both on an apiserver that has seen every write and on one that lags.
func TestWatch(t *testing.T) {
	w := newWorld(t, "watch")
	old, now := w.at(t, w.older), w.at(t, w.newest())
	newest := w.newest()
	held := w.since(w.older)

	//conformance:api-concepts Semantics for watch: unset begins with the most recent state, 0 with any, a version with what comes after it
	//conformance:api-concepts Semantics for watch: the state comes as synthetic ADDED events; from a version on there are none
	//conformance:api-concepts Unavailable resource versions: a watch waits for it
	t.Run("lagging", func(t *testing.T) {
		c := w.servers[lagging]
		zero := w.watch(t, c, metav1.ListOptions{ResourceVersion: "0"})
		zero.initial(old)
		fromOlder := w.watch(t, c, metav1.ListOptions{ResourceVersion: w.older})
		fromNewest := w.watch(t, c, metav1.ListOptions{ResourceVersion: newest})
		// The most recent state is what the server does not have: it says so rather than show an older one.
		w.watch(t, c, metav1.ListOptions{}).unavailable()
		initial := metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: notOlderMatch}
		w.watch(t, c, initial).unavailable()
		w.etcd.Release()
		unset, list := w.watch(t, c, metav1.ListOptions{}), w.watch(t, c, initial)
		unset.initial(now)
		list.initial(now)
		zero.expect(held)
		fromOlder.expect(held)
		last := w.write(t, "c3")
		for _, s := range []*stream{unset, zero, fromOlder, fromNewest} {
			s.expect(w.since(newest))
		}
		require.Equal(t, watch.Bookmark, list.next().kind, "the end of the initial events")
		require.Equal(t, last, list.next().rv)
	})
	//conformance:api-concepts Efficient detection of changes: a watch from a list's version misses nothing and doubles nothing
	//conformance:api-concepts Semantics for watch: unset begins with the most recent state, 0 with any, a version with what comes after it
	//conformance:api-concepts Semantics for watch: the state comes as synthetic ADDED events; from a version on there are none
	t.Run("current", func(t *testing.T) {
		w.settle(t)
		newest, now := w.newest(), w.at(t, w.newest())
		unset := w.watch(t, w.c, metav1.ListOptions{})
		unset.initial(now)
		zero := w.watch(t, w.c, metav1.ListOptions{ResourceVersion: "0"})
		zero.initial(now)
		fromOlder := w.watch(t, w.c, metav1.ListOptions{ResourceVersion: w.older})
		fromOlder.expect(w.since(w.older))
		fromNewest := w.watch(t, w.c, metav1.ListOptions{ResourceVersion: newest})
		w.write(t, "c6")
		w.write(t, "c6")
		for _, s := range []*stream{unset, zero, fromOlder, fromNewest} {
			s.expect(w.since(newest))
		}
	})
	//conformance:api-concepts Unavailable resource versions: a watch waits for it
	t.Run("future", func(t *testing.T) {
		// Only the test writes configmaps, but others write too: at least this many writes lie before it.
		future := plus(t, w.newest(), 50)
		s := w.watch(t, w.c, metav1.ListOptions{ResourceVersion: future})
		within(t, time.Minute, "the future", func() (bool, error) { return before(future, w.write(t, "c4")) == nil, nil })
		s.expect(w.since(future))
	})
	//conformance:api-concepts Unavailable resource versions: until its time-out, if it does not come
	t.Run("unknown", func(t *testing.T) {
		const seconds = 2
		began := time.Now()
		i, err := w.client(w.c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: w.future(t), TimeoutSeconds: new(int64(seconds))})
		require.NoError(t, err)
		t.Cleanup(i.Stop)
		w.write(t, "c5")
		e, open := <-i.ResultChan()
		require.False(t, open, "neither an error nor an event: %v", e)
		require.GreaterOrEqual(t, time.Since(began), seconds*time.Second)
	})
	//conformance:list-semantics Add a ResourceVersionMatch query parameter: a watch has no match
	t.Run("match", func(t *testing.T) {
		_, err := w.client(w.c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: newest, ResourceVersionMatch: exactMatch})
		isInvalid(t, err)
	})
}

// TestBookmarks: kubernetes-api-concepts, "Watch bookmarks": only who asks for them gets them; a bookmark is of the
// type that is watched, has nothing but a resource version, and that is not behind what was sent before. For every
// type see TestTypes.
//
//conformance:api-concepts Watch bookmarks: they come only if asked for, and have nothing but a version
//conformance:api-concepts Watch bookmarks: all up to their version has been sent
func TestBookmarks(t *testing.T) {
	w := &world{history: newHistory(t, shared(t), "bookmarks")}
	from := w.write(t, "a")
	seconds := int64(watchSeconds)
	options := metav1.ListOptions{ResourceVersion: from, TimeoutSeconds: &seconds}
	plain, err := w.client(w.c).Watch(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(plain.Stop)
	options.AllowWatchBookmarks = true
	asked, err := w.client(w.c).Watch(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(asked.Stop)
	last := w.write(t, "a")

	for e := range plain.ResultChan() {
		require.Equal(t, watch.Modified, e.Type)
	}
	bookmarks := 0
	for e := range asked.ResultChan() {
		if e.Type != watch.Bookmark {
			continue
		}
		bookmarks++
		o := e.Object.(*unstructured.Unstructured)
		require.NoError(t, notAfter(last, o.GetResourceVersion()))
		bare := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}}
		unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
		require.Equal(t, bare, o.Object)
	}
	require.Positive(t, bookmarks)
}
