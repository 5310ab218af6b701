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
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// catchUpWorkers is how many reconcile at once; most controllers have five.
const catchUpWorkers = 5

// podServer is an apiserver with one pod for each owner, for one informer.
type podServer struct {
	names []types.NamespacedName
	rv    atomic.Int64
	// stream takes events of the watch.
	stream chan watch.Event
}

// IsWatchListSemanticsUnSupported has the reflector list and then watch.
func (*podServer) IsWatchListSemanticsUnSupported() bool { return true }

func (s *podServer) pod(name string, rv int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: strconv.FormatInt(rv, 10)}}
}

func (s *podServer) List(metav1.ListOptions) (apiruntime.Object, error) {
	rv := s.rv.Load()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rv, 10)}}
	for _, name := range s.names {
		list.Items = append(list.Items, *s.pod(name.Name, rv))
	}
	return list, nil
}

func (s *podServer) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(s.stream), nil
}

// catchUps are the ways in which a cache can reach a resource version.
var catchUps = []struct {
	by string
	do func(s *podServer, rv int64)
}{
	{"event", func(s *podServer, rv int64) {
		s.stream <- watch.Event{Type: watch.Modified, Object: s.pod(s.names[0].Name, rv)}
	}},
	{"bookmark", func(s *podServer, rv int64) {
		s.stream <- watch.Event{Type: watch.Bookmark, Object: s.pod("", rv)}
	}},
	{"relist", func(*podServer, int64) { cache.RelistReflectors() }},
}

// BenchmarkCatchUp is the time from the moment at which an informer's store has caught up to the reconcile of each owner
// that was parked for it: through the informer of our client-go, the tracker's goroutine, client-go's work queue and
// the owner's check by a worker.
func BenchmarkCatchUp(b *testing.B) {
	for _, way := range catchUps {
		for _, owners := range []int{1, 200, 2000} {
			b.Run(fmt.Sprintf("by=%s/owners=%d", way.by, owners), func(b *testing.B) { benchmarkCatchUp(b, owners, way.do) })
		}
	}
}

func benchmarkCatchUp(b *testing.B, owners int, catchUp func(s *podServer, rv int64)) {
	server := &podServer{names: benchNames(owners), stream: make(chan watch.Event)}
	server.rv.Store(1000)
	informer := cache.NewSharedIndexInformer(server, &corev1.Pod{}, 0, cache.Indexers{})
	began := time.Now()
	var awaited, reached atomic.Int64
	// Observers are called in the order of adding: this one before the tracker's.
	informer.GetIndexer().(cache.ResourceVersionObservable).AddResourceVersionObserver(func(rv string) {
		if rv == strconv.FormatInt(awaited.Load(), 10) {
			reached.Store(int64(time.Since(began)))
		}
	})

	tracker := New(Options{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	stores := map[schema.GroupResource]Store{pods: informer.GetIndexer()}
	controller := tracker.ForController("c", stores, func(name types.NamespacedName) { queue.Add(name) })
	ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), logr.Discard()))
	var running, reconciles sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() { tracker.Run(ctx) })
	awaitRunning(tracker)
	require.True(b, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	var took [catchUpWorkers][]time.Duration
	for worker := range catchUpWorkers {
		running.Go(func() {
			for {
				name, stopped := queue.Get()
				if stopped {
					return
				}
				if err := controller.EnsureReady(name); err != nil {
					b.Errorf("%v is reconciled too early: %v", name, err)
				}
				took[worker] = append(took[worker], time.Since(began)-time.Duration(reached.Load()))
				queue.Done(name)
				reconciles.Done()
			}
		})
	}

	for b.Loop() {
		first := server.rv.Load()
		last := first + int64(owners)
		awaited.Store(last)
		for i, name := range server.names {
			controller.WroteAt(name, "u", pods, strconv.FormatInt(first+1+int64(i), 10))
			if controller.EnsureReady(name) == nil {
				b.Fatal("not parked")
			}
		}
		runtime.GC() // what parking all at once has left, see BenchmarkWake
		reconciles.Add(owners)
		server.rv.Store(last)
		catchUp(server, last)
		reconciles.Wait()
	}
	queue.ShutDown()
	cancel()
	running.Wait()

	all := slices.Sorted(slices.Values(slices.Concat(took[:]...)))
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(at(1), "max-µs")
}
