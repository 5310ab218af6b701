// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// manyCaches returns a monitor of as many caches as a kube-controller-manager has, with two handlers each, all of them proven. next takes
// each to its next change.
func manyCaches(ctx context.Context) (m *Monitor, next func()) {
	informers := map[schema.GroupVersionResource]Informer{}
	deliveries := map[Informer][]*Delivery{}
	var stores []*fixedStore
	for i := range 61 {
		store := &fixedStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), rv: "100"}
		stores = append(stores, store)
		informers[schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("things-", i)}] = store
		deliveries[store] = []*Delivery{NewDelivery("one"), NewDelivery("two")}
	}
	at := 100
	next = func() {
		at++
		for _, store := range stores {
			store.rv = strconv.Itoa(at)
			for _, d := range deliveries[store] {
				d.Bookmark(store.rv)
			}
		}
	}
	m = New(Options{
		Prover: provenAll{}, Metrics: noMetrics{}, Informers: func() map[schema.GroupVersionResource]Informer { return informers },
		Register: func(schema.GroupVersionResource, Informer) {}, Forget: func(schema.GroupVersionResource, Informer) {},
		Handlers: func(i Informer) []*Delivery { return deliveries[i] },
	})
	m.discover(ctx, &sync.WaitGroup{})
	m.plan()
	next()
	for gvr := range informers {
		m.caches[gvr].begin() // So that none is due.
		m.Fenced(gvr, freshness.Fence{ResourceVersion: "100", TakenAt: time.Now()})
	}
	return m, next
}

// fixedStore is an informer and its empty store.
type fixedStore struct {
	cache.Store
	rv string
}

func (s *fixedStore) GetStore() cache.Store                { return s }
func (s *fixedStore) LastSyncResourceVersion() string      { return s.rv }
func (s *fixedStore) LastStoreSyncResourceVersion() string { return s.rv }

type provenAll struct{ Prover }

func (provenAll) Known(gvr schema.GroupVersionResource) (freshness.Proof, bool) {
	return freshness.Proof{Resource: gvr, Outcome: freshness.Proven, At: time.Now(), ResourceVersion: "100"}, true
}

type noMetrics struct{ Metrics }

func (noMetrics) Watched(schema.GroupVersionResource)         {}
func (noMetrics) Entered(schema.GroupVersionResource, string) {}

// Samples are taken every second, of all caches: they leave nothing for the collection to do, whether the caches stand still or move.
func TestASampleAllocatesNothing(t *testing.T) {
	m, next := manyCaches(t.Context())
	sample := func() {
		for _, c := range m.all() {
			c.sample(t.Context())
			c.callForHelp()
		}
		m.schedule(t.Context(), nil, true)
	}
	sample()
	for _, c := range m.all() {
		require.Equal(t, Fresh, c.current())
	}
	require.Zero(t, testing.AllocsPerRun(100, sample), "caches that stand still")
	text := testing.AllocsPerRun(100, next)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { next(); sample() }), text+2, "caches that move, but for their own versions")
}

// What the monitor does in 5 s beside its probes, and what a scrape reads of it.
func BenchmarkMonitor(b *testing.B) {
	m, next := manyCaches(b.Context())
	b.Run("samples", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.discover(b.Context(), nil)
			m.plan()
			for _, c := range m.all() {
				c.remember()
			}
			for tick := range 20 {
				if tick%4 == 0 {
					next()
					for _, c := range m.all() {
						c.sample(b.Context())
						c.callForHelp()
					}
				}
				m.schedule(b.Context(), nil, tick%4 == 0)
			}
		}
	})
	b.Run("scrape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = m.Caches()
		}
	})
}

// Snapshots share the history, and none of them is changed by what comes later.
func TestTheHistoryOfASnapshotStays(t *testing.T) {
	m, _ := manyCaches(t.Context())
	c := m.all()[0]
	for remembered := range 3 * historyLength {
		got := m.Caches()[0].History
		require.Len(t, got, min(remembered, historyLength))
		before := slices.Clone(got)
		longer := append(got, Sample{State: Stalled})
		c.remember()
		require.Equal(t, before, got)
		require.Equal(t, Stalled, longer[len(got)].State, "what a reader appends is its own")
	}
}
