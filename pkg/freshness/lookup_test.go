// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// A definition may come back in another version, beside the old one for a while.
func TestLookupFindsTheVersionThatIsTracked(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
		old, current := widgets.WithVersion("v1beta1"), widgets.WithVersion("v1")
		tracker := rvtracker.New(rvtracker.Options{SameStore: func(schema.GroupResource) bool { return true }})
		track := func(gvr schema.GroupVersionResource) *rvtracker.Source {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			source := tracker.Register(gvr.GroupResource(), store)
			require.True(w, w.p.Track(gvr, store, source))
			return source
		}
		_, known := w.p.Lookup(widgets)
		require.False(w, known)

		of := track(old)
		found, _ := w.p.Lookup(widgets)
		require.Equal(w, old, found)
		track(current)
		require.True(w, w.p.Untrack(old, of))
		found, known = w.p.Lookup(widgets)
		require.True(w, known)
		require.Equal(w, current, found)
	})
}
