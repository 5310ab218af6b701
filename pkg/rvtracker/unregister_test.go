// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type noFencer struct{ Fencer }

func TestUnregister(t *testing.T) {
	b := newBench(t, Options{OnRewind: func() {}, Fencer: noFencer{}})
	require.Nil(t, b.tracker.Unregister(b.pods), "a controller reads it")
	require.Nil(t, b.tracker.Unregister(&hookedStore{}), "nobody knows it")

	store := &hookedStore{}
	s := b.tracker.Register(widgets, store)
	store.apply("10")
	inFlight := s.BeginFence()
	waiting := make(chan error, 1)
	go func() { waiting <- s.Wait(t.Context(), "20") }()
	for b.waiters(&s.line) == 0 { //nolint:revive // the waiter is about to enter
	}
	require.Same(t, s, b.tracker.Unregister(store))
	b.pump()
	require.ErrorIs(t, <-waiting, errUnregistered)
	require.ErrorIs(t, s.Wait(t.Context(), "20"), errUnregistered)
	require.Nil(t, b.tracker.Unregister(store), "once")

	// What still comes of it says nothing of the server.
	store.apply("5")
	store.apply("opaque")
	require.Equal(t, findingOutdated, s.observeFence(inFlight, "3"))
	require.Equal(t, findingOutdated, s.observeFence(s.BeginFence(), "3"))
	b.tracker.mu.Lock()
	for _, source := range b.tracker.sources {
		source.askFence()
	}
	b.tracker.mu.Unlock()
	var asked []schema.GroupResource
	for _, f := range b.tracker.dueFences() {
		asked = append(asked, f.resource)
	}
	require.ElementsMatch(t, []schema.GroupResource{pods, sets}, asked)
	require.Zero(t, b.metrics.count("regression"))
	require.Zero(t, b.metrics.count("rewind"))

	again := b.tracker.Register(widgets, store)
	require.NotSame(t, s, again)
	store.apply("30")
	require.Equal(t, "30", again.pos().String())
}

func TestNothingIsKeptOfWhatIsUnregistered(t *testing.T) {
	b := newBench(t, Options{})
	sources := len(b.tracker.sources)
	for round := range 3 {
		var stores []*hookedStore
		for i := range 50 {
			store := &hookedStore{}
			b.tracker.Register(schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("things%d", i)}, store)
			store.apply(fmt.Sprint(100*round + i + 1))
			stores = append(stores, store)
		}
		require.Len(t, b.tracker.infos(), sources+50)
		for _, store := range stores {
			require.NotNil(t, b.tracker.Unregister(store))
		}
		require.Len(t, b.tracker.infos(), sources)
		require.Len(t, b.tracker.byStore, sources)
	}
}

// Discovery flaps: definitions come and go while their informers run on. A store's observers cannot be taken away.
func TestNothingGrowsWhenDiscoveryFlaps(t *testing.T) {
	b := newBench(t, Options{})
	sources := len(b.tracker.sources)
	stores := make([]*hookedStore, 1000)
	for i := range stores {
		stores[i] = &hookedStore{}
	}
	for flap := range 10 {
		for i, store := range stores {
			s := b.tracker.Register(schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("things%d", i)}, store)
			store.relist(fmt.Sprint(1000*flap+1), nil)
			store.apply(fmt.Sprint(1000*flap + 2))
			require.Equal(t, fmt.Sprint(1000*flap+2), s.pos().String(), "the present source gets it")
		}
		for _, store := range stores {
			require.NotNil(t, b.tracker.Unregister(store))
			store.apply(fmt.Sprint(1000*flap + 3))
		}
		b.pump()
	}
	for _, store := range stores {
		require.Len(t, store.observers, 1)
		require.Len(t, store.replaceObservers, 1)
	}
	require.Len(t, b.tracker.sources, sources)
	require.Len(t, b.tracker.byStore, sources)
	require.Len(t, b.tracker.hooks, sources+len(stores), "one for each informer that runs")
	require.Equal(t, 10*len(stores), b.metrics.count("forgottenexample.com"))
	require.Zero(t, b.metrics.count("regression"))
}
