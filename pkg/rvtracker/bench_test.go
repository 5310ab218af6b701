// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// consistencyStore is upstream's interface; Controller has to fit it as it is.
var _ consistency.ConsistencyStore = (*Controller)(nil)

func benchNames(n int) []types.NamespacedName {
	names := make([]types.NamespacedName, n)
	for i := range names {
		names[i] = types.NamespacedName{Namespace: "kube-system", Name: "daemonset-" + strconv.Itoa(i)}
	}
	return names
}

func benchRVs(first, n int) []string {
	rvs := make([]string, n)
	for i := range rvs {
		rvs[i] = strconv.Itoa(first + i)
	}
	return rvs
}

// BenchmarkEvent is what one informer event costs more.
func BenchmarkEvent(b *testing.B) {
	rvs := benchRVs(123456789, 1<<16)
	run := func(b *testing.B, s *Source) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if i == len(rvs) {
				i = 0
				s.cur.Store(0) // start over without going back
			}
			s.observe(rvs[i])
			i++
		}
	}
	b.Run("nobody-waits", func(b *testing.B) {
		t := New(Options{})
		run(b, t.Register(pods, &hookedStore{}))
	})
	b.Run("2000-wait-for-later", func(b *testing.B) {
		t := New(Options{})
		t.running = true
		c := t.ForController("c", map[schema.GroupResource]Store{pods: &hookedStore{}}, func(types.NamespacedName) {})
		for _, n := range benchNames(2000) {
			c.WroteAt(n, "u", pods, "999999999999")
			_ = c.EnsureReady(n)
		}
		run(b, c.sources[pods])
	})
}

type benchStore interface {
	consistency.ConsistencyStore
}

func benchStores(rv string) (fresh *Controller, upstream benchStore) {
	store := &hookedStore{}
	store.apply(rv)
	t := New(Options{})
	t.running = true
	fresh = t.ForController("c", map[schema.GroupResource]Store{pods: store}, func(types.NamespacedName) {})
	upstream = consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{pods: store})
	return fresh, upstream
}

// BenchmarkEnsureReady is the check of an owner that has nothing pending.
func BenchmarkEnsureReady(b *testing.B) {
	names := benchNames(64)
	idle := types.NamespacedName{Namespace: "kube-system", Name: "idle-daemonset"}
	for _, pending := range []int{0, 1, 64} {
		fresh, upstream := benchStores("5")
		for _, n := range names[:pending] {
			fresh.WroteAt(n, "u", pods, "10")
			upstream.WroteAt(n, "u", pods, "10")
		}
		for fresh.table.mayHold(idle) && pending > 0 {
			idle.Name += "x" // the seed is random; time the usual case, not a collision
		}
		for arm, s := range map[string]benchStore{"fresh": fresh, "upstream": upstream} {
			b.Run(fmt.Sprintf("others-pending=%d/arm=%s", pending, arm), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if s.EnsureReady(idle) != nil {
						b.Fatal("not ready")
					}
				}
			})
		}
	}
}

// BenchmarkWriteAndSee is a write, its event, and the check after it.
func BenchmarkWriteAndSee(b *testing.B) {
	name := benchNames(1)[0]
	rvs := benchRVs(123456789, 1<<16)
	for _, arm := range []string{"fresh", "upstream"} {
		b.Run("arm="+arm, func(b *testing.B) {
			store := &hookedStore{}
			t := New(Options{})
			var s benchStore = t.ForController("c", map[schema.GroupResource]Store{pods: store}, func(types.NamespacedName) {})
			if arm == "upstream" {
				store.observers = nil
				s = consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{pods: store})
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i == len(rvs) {
					i = 0
					store.rv = ""
					t.sources = nil
					if arm == "fresh" {
						t.byStore[store].cur.Store(0)
					}
				}
				s.WroteAt(name, "u", pods, rvs[i])
				store.apply(rvs[i])
				if s.EnsureReady(name) != nil {
					b.Fatal("not ready")
				}
				i++
			}
		})
	}
}

// BenchmarkRecordedOwner is the memory of one owner with one write in flight.
func BenchmarkRecordedOwner(b *testing.B) {
	const n = 10000
	names := benchNames(n)
	uids := make([]types.UID, n)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	}
	rvs := benchRVs(123456789, n)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, arm := range []string{"fresh", "fresh-parked", "upstream"} {
		b.Run("arm="+arm, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				fresh, upstream := benchStores("5")
				before := heap()
				for i, name := range names {
					switch arm {
					case "upstream":
						upstream.WroteAt(name, uids[i], pods, rvs[i])
					default:
						fresh.WroteAt(name, uids[i], pods, rvs[i])
						if arm == "fresh-parked" {
							_ = fresh.EnsureReady(name)
						}
					}
				}
				bytes = float64(heap()-before) / n
				runtime.KeepAlive(fresh)
				runtime.KeepAlive(upstream)
			}
			b.ReportMetric(bytes, "B/owner")
		})
	}
}

// BenchmarkWake is the time from the event that catches up, as the informer sees
// it, to the return of queue.Add, for each of the parked owners.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{1, 200, 2000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			names := benchNames(n)
			store := &hookedStore{}
			t := New(Options{})
			var start time.Time
			var all []time.Duration
			took := make([]time.Duration, 0, n)
			woken := 0
			var done sync.WaitGroup
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
			c := t.ForController("c", map[schema.GroupResource]Store{pods: store}, func(name types.NamespacedName) {
				queue.Add(name)
				// Reading the clock costs a third of a wake, so not every time.
				if woken++; woken%8 == 0 || n < 8 {
					took = append(took, time.Since(start))
				}
				if woken%n == 0 {
					done.Done()
				}
			})
			ctx, cancel := context.WithCancel(b.Context())
			var run sync.WaitGroup
			run.Go(func() { t.Run(ctx) })
			awaitRunning(t)
			rv := 1000
			for b.Loop() {
				store.apply(strconv.Itoa(rv))
				for i, name := range names {
					c.WroteAt(name, "u", pods, strconv.Itoa(rv+1+i))
					if c.EnsureReady(name) == nil {
						b.Fatal("not parked")
					}
				}
				// What parking has left to collect is not the wake's: in a controller it comes and goes long before.
				runtime.GC()
				done.Add(1)
				rv += n
				text := strconv.Itoa(rv)
				start = time.Now()
				store.apply(text)
				done.Wait()
				all = append(all, took...)
				took = took[:0]
				for range n {
					item, _ := queue.Get()
					queue.Done(item)
				}
			}
			cancel()
			run.Wait()
			slices.Sort(all)
			at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) }
			b.ReportMetric(at(0.5), "p50-µs")
			b.ReportMetric(at(0.99), "p99-µs")
			b.ReportMetric(at(1), "max-µs")
		})
	}
}
