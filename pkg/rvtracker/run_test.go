// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// liveFencer answers from a function, as a server would.
type liveFencer struct {
	inFlight, most atomic.Int32
	calls          atomic.Int32
	f              func(ctx context.Context) (string, error)
}

func (l *liveFencer) Fence(ctx context.Context, _ schema.GroupResource) (string, error) {
	l.calls.Add(1)
	if n := l.inFlight.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	defer l.inFlight.Add(-1)
	return l.f(ctx)
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live atomic.Int64
		live.Store(100)
		f := &liveFencer{f: func(ctx context.Context) (string, error) {
			time.Sleep(5 * time.Millisecond)
			return strconv.FormatInt(live.Load(), 10), nil
		}}
		tr := New(Options{Fencer: f})
		a, b := &hookedStore{}, &hookedStore{} // two informers of one resource
		woken := make(chan types.NamespacedName, 10)
		c := tr.ForController("ds", map[schema.GroupResource]Store{pods: a}, func(n types.NamespacedName) { woken <- n })
		tr.ForController("job", map[schema.GroupResource]Store{pods: b}, func(types.NamespacedName) {})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { tr.Run(ctx) })
		synctest.Wait()

		a.apply("100")
		b.apply("100")
		c.WroteAt(dsA, "u", pods, "110")
		require.True(t, requireNotReady(t, c.EnsureReady(dsA)).Parked())
		a.apply("110")
		require.Equal(t, dsA, <-woken)
		require.NoError(t, c.EnsureReady(dsA))

		// Both informers lose their place: one fence answers for both.
		live.Store(62)
		a.apply("60")
		b.apply("60")
		requireNotReady(t, c.EnsureReady(dsA))
		start := time.Now()
		require.Equal(t, dsA, <-woken)
		require.Less(t, time.Since(start), time.Second)
		require.NoError(t, c.EnsureReady(dsA))
		synctest.Wait()
		require.LessOrEqual(t, f.calls.Load(), int32(2))
		require.Equal(t, int32(1), f.most.Load(), "one in flight for each resource")

		// A fence that hangs is given up and does not stop the rest.
		f.f = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		c.WroteAt(dsA, "u", pods, "70")
		requireNotReady(t, c.EnsureReady(dsA))
		time.Sleep(2 * time.Minute)
		require.Empty(t, woken, "no answer is no proof")
		require.GreaterOrEqual(t, f.calls.Load(), int32(4))
		require.Equal(t, int32(1), f.most.Load())

		// Whoever is parked at the end is woken.
		cancel()
		wg.Wait()
		require.Equal(t, dsA, <-woken)
		require.False(t, requireNotReady(t, c.EnsureReady(dsA)).Parked())
	})
}

// TestConcurrentUse has every method at work at once; the race detector and the
// final count are the oracle.
func TestConcurrentUse(t *testing.T) {
	tr := New(Options{})
	stores := []*hookedStore{{}, {}}
	const owners, rounds = 20, 200
	var parked sync.Map
	var lost atomic.Int32
	c := tr.ForController("c", map[schema.GroupResource]Store{pods: stores[0], sets: stores[1]},
		func(n types.NamespacedName) { parked.Delete(n) })
	ctx, cancel := context.WithCancel(t.Context())
	var run, wg sync.WaitGroup
	run.Go(func() { tr.Run(ctx) })
	var live [2]atomic.Int64
	stop := make(chan struct{})
	var informers sync.WaitGroup
	for i, s := range stores {
		live[i].Store(1)
		informers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.apply(strconv.FormatInt(live[i].Load(), 10))
				}
			}
		})
	}
	grs := []schema.GroupResource{pods, sets}
	for w := range 4 {
		wg.Go(func() {
			for r := range rounds {
				name := types.NamespacedName{Name: fmt.Sprint(r % owners)}
				i := (w + r) % 2
				c.WroteAt(name, "u", grs[i], strconv.FormatInt(live[i].Add(1), 10))
				switch r % 7 {
				case 0:
					c.Clear(name, "u")
				case 1:
					c.Deleted(name, "u", grs[i], pod1, "p")
				case 2:
					tr.waiting()
					tr.infos()
				case 3:
					c.sources[grs[i]].ObserveFence(c.sources[grs[i]].BeginFence(), strconv.FormatInt(live[i].Load(), 10))
				}
				parked.Store(name, true)
				if c.EnsureReady(name) == nil {
					parked.Delete(name)
				}
			}
		})
	}
	wg.Wait()
	for o := range owners {
		name := types.NamespacedName{Name: fmt.Sprint(o)}
		for c.EnsureReady(name) != nil {
		}
		if err := c.EnsureReady(name); err != nil {
			lost.Add(1)
		}
	}
	close(stop)
	informers.Wait()
	cancel()
	run.Wait()
	require.Zero(t, lost.Load())
	require.Zero(t, c.busy.Load())
	require.Zero(t, c.parked)
}

// TestNoWakeIsLost races the event that is awaited with the waiting for it. It
// fails if whoever waits does not look at the position again after it has set the
// gate, which is the half of the protocol that an informer cannot see.
func TestNoWakeIsLost(t *testing.T) {
	const (
		// A wake that is lost never comes. One that is not has come once both goroutines have had a processor.
		patience = time.Minute
		// enough is for how long rounds begin: on a machine that is busy each may take some 50 ms.
		enough = 30 * time.Second
	)
	tr := New(Options{})
	store := &hookedStore{}
	s := tr.Register(pods, store)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var run sync.WaitGroup
	run.Go(func() { tr.Run(ctx) })
	awaitRunning(tr)
	n := 50000
	if testing.Short() {
		n = 5000
	}
	var turn atomic.Int64
	run.Go(func() {
		for i := 1; i <= n; i++ {
			for spins := 1; turn.Load() < int64(i) && ctx.Err() == nil; spins++ {
				if spins%1000 == 0 {
					runtime.Gosched() // It may be the only processor.
				}
			}
			for range i % 97 { // spread over the time that Wait takes
				turn.Load()
			}
			s.observe(strconv.Itoa(i))
		}
	})
	lost := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no wake in %s", patience)) })
	rounds := 0
	for began := time.Now(); rounds < n && time.Since(began) < enough; {
		rounds++
		lost.Reset(patience)
		turn.Store(int64(rounds))
		if err := s.Wait(ctx, strconv.Itoa(rounds)); err != nil {
			t.Fatalf("round %d: %v", rounds, err)
		}
	}
	t.Logf("%d rounds", rounds)
	cancel(nil)
	run.Wait()
}
