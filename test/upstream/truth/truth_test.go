// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// pods returns a cache of pods that came in the order of their names: the last one's version is the cache's.
func pods(t *testing.T, versions map[string]string) *Cache {
	t.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if err := store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: versions[name]}}); err != nil {
			t.Fatal(err)
		}
	}
	return NewCache(store)
}

// TestProof shows that a cache is proven if the server has what it has, with versions or without, and is not if the server has more.
func TestProof(t *testing.T) {
	resource := corev1.Resource("pods")
	for name, c := range map[string]struct {
		cached, served map[string]string
		want           freshness.Outcome
	}{
		"same":             {map[string]string{"a": "7"}, map[string]string{"a": "7"}, freshness.Proven},
		"without versions": {map[string]string{"a": ""}, map[string]string{"a": ""}, freshness.Proven},
		"one pod more":     {map[string]string{"a": "7"}, map[string]string{"a": "7", "b": "8"}, freshness.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := rvtracker.New(rvtracker.Options{})
			go tracker.Run(t.Context())
			p, err := NewProver(tracker)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Register(t.Context(), resource, pods(t, c.cached)); err != nil {
				t.Fatal(err)
			}
			p.server.serve(resource, pods(t, c.served))
			if proof := p.Prove(t.Context(), resource, time.Now()); proof.Outcome != c.want {
				t.Errorf("%s, want %s", proof, c.want)
			}
		})
	}
}

// TestLeases shows that nothing is ever proven of leases, and that asking again does not help.
func TestLeases(t *testing.T) {
	p, err := NewProver(rvtracker.New(rvtracker.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Register(t.Context(), leases, pods(t, nil)); err != nil {
		t.Fatal(err)
	}
	if proof := p.Prove(t.Context(), leases, time.Now()); !proof.Hopeless(time.Now()) {
		t.Errorf("%s, want one that is hopeless", proof)
	}
}

// TestVersion shows that the version of a cache never falls.
func TestVersion(t *testing.T) {
	c := pods(t, nil)
	for _, step := range []struct{ sets, want string }{{"", "1"}, {"9", "9"}, {"3", "9"}, {"", "9"}, {"12", "12"}} {
		if err := c.Update(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: step.sets}}); err != nil {
			t.Fatal(err)
		}
		if got := c.LastStoreSyncResourceVersion(); got != step.want {
			t.Errorf("after a pod at %q the cache is at %q, want %q", step.sets, got, step.want)
		}
	}
}
