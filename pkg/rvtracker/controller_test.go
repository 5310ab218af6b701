// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func requireNotReady(t *testing.T, err error) *NotReadyError {
	t.Helper()
	var e *NotReadyError
	require.True(t, errors.As(err, &e), "want a NotReadyError, got %v", err)
	return e
}

//conformance:kep-5504 Story 2: a controller knows when its cache has its last writes
//conformance:kep-5647 Staleness Mitigation in Controllers: an object is not reconciled until the cache has its last writes
func TestReadYourWrites(t *testing.T) {
	const uid = types.UID("u1")
	for _, tc := range []struct {
		name  string
		do    func(b *bench)
		ready bool
	}{
		{"nothing written", func(b *bench) {}, true},
		{"store behind", func(b *bench) { b.pods.apply("9"); b.c.WroteAt(dsA, uid, pods, "10") }, false},
		{"store never synced", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10") }, false},
		{"store at", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10"); b.pods.apply("10") }, true},
		{"store past", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10"); b.pods.apply("11") }, true},
		{"event before response", func(b *bench) { b.pods.apply("10"); b.c.WroteAt(dsA, uid, pods, "10") }, true},
		{"digits, not text, are compared", func(b *bench) { b.pods.apply("9"); b.c.WroteAt(dsA, uid, pods, "10"); b.pods.apply("99") }, true},
		{"64 bits exceeded, behind", func(b *bench) {
			b.pods.apply("340282366920938463463374607431768211455")
			b.c.WroteAt(dsA, uid, pods, "340282366920938463463374607431768211456")
		}, false},
		{"64 bits exceeded, reached", func(b *bench) {
			b.pods.apply("5")
			b.c.WroteAt(dsA, uid, pods, "340282366920938463463374607431768211456")
			b.pods.apply("340282366920938463463374607431768211456")
		}, true},
		{"lower write does not lower the record", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.c.WroteAt(dsA, uid, pods, "8")
			b.pods.apply("9")
		}, false},
		{"one of two resources", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.c.WroteAt(dsA, uid, sets, "11")
			b.pods.apply("12")
		}, false},
		{"both resources", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.c.WroteAt(dsA, uid, sets, "11")
			b.pods.apply("12")
			b.sets.apply("12")
		}, true},
		{"another owner's write", func(b *bench) { b.c.WroteAt(dsB, uid, pods, "10") }, true},
		{"opaque write does not erase (gap 6)", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.c.WroteAt(dsA, uid, pods, "abc")
			b.c.WroteAt(dsA, uid, pods, "")
		}, false},
		{"opaque store RV does not satisfy (gap 6)", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.pods.apply("abc")
			b.pods.apply("")
			b.pods.apply("0")
		}, false},
		{"opaque store RV does not erase the position", func(b *bench) {
			b.pods.apply("10")
			b.pods.apply("abc")
			b.c.WroteAt(dsA, uid, pods, "10")
		}, true},
		{"opaque write alone is not protected", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "abc") }, true},
		{"resource without a store", func(b *bench) { b.c.WroteAt(dsA, uid, schema.GroupResource{Resource: "x"}, "10") }, true},
		{"cleared by UID", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10"); b.c.Clear(dsA, uid) }, true},
		{"cleared whatever the UID", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10"); b.c.Clear(dsA, "") }, true},
		{"not cleared by another UID", func(b *bench) { b.c.WroteAt(dsA, uid, pods, "10"); b.c.Clear(dsA, "u2") }, false},
		{"new UID replaces", func(b *bench) {
			b.c.WroteAt(dsA, uid, pods, "10")
			b.c.WroteAt(dsA, "u2", pods, "7")
			b.pods.apply("7")
		}, true},
	} {
		for _, pumped := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				b := newBench(t, Options{})
				tc.do(b)
				if pumped {
					b.pump()
				}
				err := b.c.EnsureReady(dsA)
				if tc.ready {
					require.NoError(t, err)
					require.Nil(t, b.c.table.get(b.c.table.hash(dsA), dsA), "record kept")
					return
				}
				e := requireNotReady(t, err)
				require.True(t, e.Parked())
				require.NotEmpty(t, e.awaitedRV)
				require.Equal(t, whyWrite, e.Why)
				require.NotEmpty(t, e.Error())
			})
		}
	}
}

func TestRecordsDieWithoutBeingAskedFor(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("1")
	b.c.WroteAt(dsA, "u", pods, "10")
	b.clock.Step(3 * time.Second)
	b.pods.apply("10")
	b.pump()
	require.Zero(t, b.c.table.count)
	require.Zero(t, b.c.busy.Load())
	require.Zero(t, b.source(pods).records)
	require.Equal(t, uint64(noGate), b.source(pods).gate.Load())
	require.Equal(t, []time.Duration{3 * time.Second}, b.metrics.latency)
	require.Empty(t, b.woken, "nobody was parked")
}

//conformance:kep-5647 Staleness Mitigation in Controllers: others are reconciled meanwhile
func TestParkAndWake(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("5")
	b.c.WroteAt(dsA, "u", pods, "10")
	b.c.WroteAt(dsA, "u", sets, "20")
	b.c.WroteAt(dsB, "u", pods, "30")
	require.Zero(t, requireNotReady(t, b.c.EnsureReady(dsA)).waited)
	b.clock.Step(2 * time.Second)
	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, 2*time.Second, e.waited, "the first parking time is kept")
	require.Equal(t, 1, b.metrics.count("wait"), "parking is idempotent")
	requireNotReady(t, b.c.EnsureReady(dsB))

	b.pods.apply("10")
	require.Empty(t, b.takeWoken(), "still waits for its set")
	b.sets.apply("25")
	require.Empty(t, b.woken, "never on the informer's goroutine")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	b.sets.apply("26")
	b.pods.apply("29")
	require.Empty(t, b.takeWoken(), "woken once")
	b.pods.apply("31")
	require.Equal(t, []types.NamespacedName{dsB}, b.takeWoken())
	require.Equal(t, 2, b.metrics.waits[outcomeSeen])
	require.Zero(t, b.metrics.parked["daemonset own_writes"])
	require.Empty(t, b.tracker.waiting())
}

func TestClearWakesAParkedOwner(t *testing.T) {
	b := newBench(t, Options{})
	b.c.WroteAt(dsA, "u", pods, "10")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.c.Clear(dsA, "u")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

func TestNewUIDKeepsTheWait(t *testing.T) {
	b := newBench(t, Options{})
	b.c.WroteAt(dsA, "u1", pods, "10")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.c.WroteAt(dsA, "u2", pods, "20")
	b.pods.apply("10")
	require.Empty(t, b.takeWoken())
	b.pods.apply("20")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())

	// A first write of the new owner that the store has already seen ends the wait too.
	b.c.WroteAt(dsA, "u2", pods, "30")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.c.WroteAt(dsA, "u3", pods, "15")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

func TestDeletes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event func(map[string]*metav1.ObjectMeta)
		ready bool
	}{
		{"alive", nil, false},
		{"absent", drop(pod1), true},
		{"another UID", put(pod1, "p2"), true},
		{"terminating", terminate(pod1), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.pods.change("5", put(pod1, "p1"))
			b.c.Deleted(dsA, "u", pods, pod1, "p1")
			e := requireNotReady(t, b.c.EnsureReady(dsA))
			require.Equal(t, whyDelete, e.Why)
			require.Equal(t, types.UID("p1"), e.deletingUID)
			b.pods.change("6", tc.event)
			if !tc.ready {
				require.Empty(t, b.takeWoken())
				requireNotReady(t, b.c.EnsureReady(dsA))
				return
			}
			require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
			require.NoError(t, b.c.EnsureReady(dsA))
			require.Zero(t, b.source(pods).force)
			require.Empty(t, b.source(pods).side)
		})
	}
}

func TestDeleteOfAnObjectNotYetSeen(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("5")
	b.c.WroteAt(dsA, "u", pods, "10") // created pod-1
	b.c.Deleted(dsA, "u", pods, pod1, "p1")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.change("10", put(pod1, "p1"))
	require.Empty(t, b.takeWoken(), "absent before its creation is not gone")
	require.Equal(t, whyDelete, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pods.change("12", drop(pod1))
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

func TestWithoutRunNothingIsParked(t *testing.T) {
	b := newBench(t, Options{})
	b.tracker.running = false
	b.c.WroteAt(dsA, "u", pods, "10")
	require.False(t, requireNotReady(t, b.c.EnsureReady(dsA)).Parked())
	require.Empty(t, b.tracker.waiting())
	b.pods.apply("10")
	require.NoError(t, b.c.EnsureReady(dsA))
}

func TestPlainStoreIsPolled(t *testing.T) {
	b := newBench(t, Options{})
	store := &plainStore{}
	store.set("5", nil)
	c := b.tracker.ForController("job", map[schema.GroupResource]Store{pods: store}, func(n types.NamespacedName) { b.woken = append(b.woken, n) })
	c.WroteAt(dsA, "u", pods, "10")
	requireNotReady(t, c.EnsureReady(dsA))
	store.set("20", nil)
	require.NoError(t, c.EnsureReady(dsA), "EnsureReady reads the store")

	c.WroteAt(dsA, "u", pods, "30")
	requireNotReady(t, c.EnsureReady(dsA))
	store.set("30", nil)
	b.tracker.tick()
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken(), "so does the safety timer")
}

func TestRegisterIsIdempotent(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("7")
	c := b.tracker.ForController("job", map[schema.GroupResource]Store{pods: b.pods, sets: nil}, func(types.NamespacedName) {})
	require.Same(t, b.source(pods), c.sources[pods])
	require.Len(t, b.pods.observers, 1)
	require.NotContains(t, c.sources, sets)
	late := &hookedStore{}
	late.apply("42")
	require.Equal(t, "42", b.tracker.Register(pods, late).pos().String(), "a store that synced before")
}

func TestIntrospection(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("5")
	b.c.WroteAt(dsB, "ub", pods, "10")
	b.c.WroteAt(dsA, "ua", pods, "11")
	requireNotReady(t, b.c.EnsureReady(dsB))
	requireNotReady(t, b.c.EnsureReady(dsA))
	w := b.tracker.waiting()
	require.Len(t, w, 2)
	require.Equal(t, Wait{Controller: "daemonset", Owner: dsA, OwnerUID: "ua", Resource: pods, Why: whyWrite,
		awaitedRV: "11", SeenRV: "5", Since: b.clock.Now()}, w[0])
	require.Equal(t, dsB, w[1].Owner)
	require.Equal(t, []sourceInfo{
		{Resource: pods, StoreRV: "5", Records: 2, Hooked: true},
		{Resource: sets, Hooked: true},
	}, b.tracker.infos())
}

func TestMetricsOfIgnoredRVs(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("")
	b.c.WroteAt(dsA, "u", pods, "0")
	b.c.WroteAt(dsA, "u", schema.GroupResource{Resource: "x"}, "1")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "opaque")
	for _, what := range []string{"incomparableStore", "incomparableWrite", "incomparableFence", "untracked"} {
		require.Equal(t, 1, b.metrics.count(what), what)
	}
}
