// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestInitialEvents: a watch that is to begin with the state (sendInitialEvents), with each resource version and
// match. What does not go together is refused.
//
//conformance:list-semantics Add a ResourceVersionMatch query parameter: a watch has no match
//conformance:besides Initial events: it goes with NotOlderThan alone, and with watches alone
func TestInitialEvents(t *testing.T) {
	h := newHistory(t, shared(t), "initial")
	w := &world{history: h}
	for i := range 3 {
		h.write(t, fmt.Sprintf("c%d", i))
	}
	older := h.newest()
	h.write(t, "c0")
	h.write(t, "c3")
	w.settle(t)
	newest, state := h.newest(), h.at(t, h.newest())
	versions := map[string]string{"unset": "", "0": "0", "older": older, "newest": newest}

	for _, match := range []metav1.ResourceVersionMatch{unsetMatch, notOlderMatch, exactMatch, "Sometimes"} {
		for name, rv := range versions {
			for _, send := range []*bool{nil, new(false), new(true)} {
				said := "nil"
				if send != nil {
					said = fmt.Sprint(*send)
				}
				t.Run(fmt.Sprintf("refused/match=%s %s send=%s", match, name, said), func(t *testing.T) {
					s, err := h.client(h.c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: match, SendInitialEvents: send, AllowWatchBookmarks: true})
					if (send == nil && match == unsetMatch) || (send != nil && match == notOlderMatch) {
						require.NoError(t, err)
						s.Stop()
						return
					}
					isInvalid(t, err)
				})
			}
		}
	}
	//conformance:besides Initial events: it goes with NotOlderThan alone, and with watches alone
	t.Run("of a list", func(t *testing.T) {
		_, err := h.client(h.c).List(t.Context(), metav1.ListOptions{ResourceVersion: older, ResourceVersionMatch: notOlderMatch, SendInitialEvents: new(true)})
		isInvalid(t, err)
	})
	//conformance:besides Initial events: a watch with sendInitialEvents begins with a state at the version or newer, and a bookmark says when that is complete
	//conformance:besides Initial events: false brings no state, whatever the version
	t.Run("served", func(t *testing.T) {
		with, without, quiet := map[string]*stream{}, map[string]*stream{}, map[string]*stream{}
		for name, rv := range versions {
			options := metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: notOlderMatch, SendInitialEvents: new(true), AllowWatchBookmarks: true}
			with[name] = w.watch(t, h.c, options)
			with[name].initial(state)
			end := with[name].next()
			require.Equal(t, watch.Bookmark, end.kind, name)
			require.NoError(t, notAfter(newest, end.rv), name)
			options.AllowWatchBookmarks = false
			quiet[name] = w.watch(t, h.c, options)
			quiet[name].initial(state)
			options.SendInitialEvents = new(false)
			without[name] = w.watch(t, h.c, options)
		}
		last := h.write(t, "c1")
		for name := range versions {
			require.Equal(t, change{watch.Modified, "c1", last}, with[name].next(), name)
			require.Equal(t, change{watch.Modified, "c1", last}, quiet[name].next(), "no bookmark says that the state is complete: %s", name)
			if name == "older" {
				without[name].expect(w.since(older))
				continue
			}
			require.Equal(t, change{watch.Modified, "c1", last}, without[name].next(), "no state: %s", name)
		}
	})
	//conformance:besides Initial events: a version that is yet to come is 504
	t.Run("future", func(t *testing.T) {
		w.watch(t, h.c, metav1.ListOptions{ResourceVersion: h.future(t), ResourceVersionMatch: notOlderMatch, SendInitialEvents: new(true), AllowWatchBookmarks: true}).unavailable()
	})
}

// TestCheckpoint: KEP-5504, "Story 1": a client works on all that is older than a checkpoint, and stops. In 1.37 a
// watch sends the state in the order of names, so that a client may stop at a version past the checkpoint only
// once the state is complete; a watch from a version on is in order from its beginning.
//
//conformance:kep-5504 Story 1: a client works on a streamed list up to a checkpoint and stops
func TestCheckpoint(t *testing.T) {
	h := newHistory(t, shared(t), "checkpoint")
	w := &world{history: h}
	before0 := h.write(t, "before")
	for i := 9; i >= 0; i-- {
		h.write(t, fmt.Sprintf("c%d", i))
	}
	checkpoint := h.newest() // of c0, the first by name
	h.write(t, "c4")         // which is past the checkpoint now
	h.write(t, "d")
	want := map[string]string{}
	for name, rv := range h.at(t, h.newest()) {
		if before(rv, checkpoint) == nil {
			want[name] = rv
		}
	}
	require.Len(t, want, 9)
	w.settle(t)

	t.Run("streamed list", func(t *testing.T) {
		i, err := h.client(h.c).Watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: notOlderMatch})
		require.NoError(t, err)
		t.Cleanup(i.Stop)
		done, left := map[string]string{}, 0
		for e := range i.ResultChan() {
			o := e.Object.(*unstructured.Unstructured)
			rv := o.GetResourceVersion()
			if e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				require.NoError(t, notAfter(checkpoint, rv), "all that is older has been sent")
				break
			}
			require.Equal(t, watch.Added, e.Type)
			if before(rv, checkpoint) != nil {
				left += len(want) - len(done)
				continue
			}
			done[o.GetName()] = rv
		}
		require.Equal(t, want, done)
		require.Positive(t, left, "who had stopped at the first version past the checkpoint would have left something out")
	})
	t.Run("watch from a version on", func(t *testing.T) {
		s := w.watch(t, h.c, metav1.ListOptions{ResourceVersion: before0})
		done := map[string]string{"before": before0}
		for e := s.next(); before(e.rv, checkpoint) == nil; e = s.next() {
			done[e.name] = e.rv
		}
		delete(want, "c4")
		delete(done, "c4")
		require.Equal(t, want, done)
	})
}
