// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// relistBench is a bench of which both stores have been listed once.
func relistBench(t *testing.T) *bench {
	b := newBench(t, Options{Prover: noProver{}})
	b.tracker.relistLimits = Limits{time.Hour, time.Hour}
	b.pods.relist("100", nil)
	b.sets.relist("90", nil)
	require.NoError(t, b.c.EnsureReady(dsA), "first lists hold nobody")
	require.Zero(t, b.c.busy.Load())
	return b
}

// begun returns the resources of the proofs that are due, which begin now.
func (b *bench) begun() (due []pendingProof, resources []schema.GroupResource) {
	due = b.tracker.dueProofs()
	for _, p := range due {
		resources = append(resources, p.src.resource)
	}
	return due, resources
}

// answer ends proofs.
func (b *bench) answer(proofs []pendingProof, err error) {
	for _, p := range proofs {
		b.tracker.proved(p, err)
		b.tracker.endProof(p.src)
	}
}

func TestARelistHoldsOwnersUntilTheOtherCachesAreProven(t *testing.T) {
	b := relistBench(t)
	b.pods.relist("200", nil)
	due, _ := b.begun()
	require.Empty(t, due, "nobody waits for it")
	asOf := b.clock.Now()
	b.clock.Step(time.Second)

	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyUnproven, e.Why)
	require.Equal(t, sets, e.Resource, "the one that was listed is as new as itself")
	require.True(t, e.Parked())
	require.ErrorContains(t, e, `cache of daemonsets.apps at resource version "90" waits for a proof that it is as new as another cache`)
	require.Equal(t, whyUnproven, b.tracker.waiting()[0].Why)
	require.Contains(t, b.tracker.waiting()[0].Awaits(), "a proof")
	requireNotReady(t, b.c.EnsureReady(dsB))

	due, resources := b.begun()
	require.Equal(t, []schema.GroupResource{sets}, resources, "one for all")
	require.Equal(t, asOf, due[0].asOf)
	again, _ := b.begun()
	require.Empty(t, again, "one at a time")
	b.sets.apply("300")
	b.answer(due, fmt.Errorf("behind: %w", ErrStale))
	require.Empty(t, b.takeWoken(), "an event proves nothing")
	require.Equal(t, 2, b.metrics.count("stale"))
	require.Equal(t, whyUnproven, requireNotReady(t, b.c.EnsureReady(dsA)).Why)

	b.safety(time.Minute)
	require.Len(t, b.stale, 2, "it says so")
	require.True(t, b.stale[0].ProvenStale)
	require.Zero(t, b.metrics.count("fence"), "a fence would prove nothing of a quiet cache")

	due, _ = b.begun()
	b.answer(due, errors.New("no server"))
	require.Empty(t, b.takeWoken())
	due, _ = b.begun()
	b.answer(due, nil)
	require.ElementsMatch(t, []types.NamespacedName{dsA, dsB}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.NoError(t, b.c.EnsureReady(dsB))
	require.Zero(t, b.c.busy.Load())
	require.Equal(t, 3, b.metrics.count("proof"))
	require.Equal(t, map[string]int{outcomeSeen: 2}, b.metrics.waits)
}

// The store shows the new content before its observers are called.
func TestARelistHoldsBeforeItShows(t *testing.T) {
	b := relistBench(t)
	b.pods.replaceObservers[0]("200")
	require.Equal(t, "100", b.pods.LastStoreSyncResourceVersion())
	require.Equal(t, whyUnproven, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
}

func TestAnOwnerThatTheRelistFreesGoesOnWaiting(t *testing.T) {
	b := relistBench(t)
	b.c.WroteAt(dsA, "u", pods, "150")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.relist("200", nil)
	require.Empty(t, b.takeWoken(), "it would be refused")
	due, resources := b.begun()
	require.Equal(t, []schema.GroupResource{sets}, resources)
	b.answer(due, nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, 1, b.metrics.count("wait"), "it was one wait")
	require.Len(t, b.metrics.latency, 1)
}

func TestAWriteDuringTheProofIsWaitedForToo(t *testing.T) {
	for _, proofFirst := range []bool{true, false} {
		b := relistBench(t)
		b.pods.relist("200", nil)
		requireNotReady(t, b.c.EnsureReady(dsA))
		due, _ := b.begun()
		b.c.WroteAt(dsA, "", sets, "95")
		steps := []func(){func() { b.answer(due, nil) }, func() { b.sets.apply("95") }}
		if !proofFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		steps[0]()
		require.Empty(t, b.takeWoken())
		requireNotReady(t, b.c.EnsureReady(dsA))
		steps[1]()
		require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
		require.NoError(t, b.c.EnsureReady(dsA))
	}
}

func TestAProofFromBeforeARelistDoesNotCoverIt(t *testing.T) {
	b := relistBench(t)
	b.pods.relist("200", nil)
	requireNotReady(t, b.c.EnsureReady(dsA))
	early, _ := b.begun()
	b.pods.relist("300", nil)
	b.answer(early, nil)
	require.Empty(t, b.takeWoken())
	requireNotReady(t, b.c.EnsureReady(dsA))
	late, _ := b.begun()
	b.sets.relist("300", nil)
	b.answer(late, nil)
	require.Empty(t, b.takeWoken(), "now the pods have to be proven")
	require.Equal(t, pods, requireNotReady(t, b.c.EnsureReady(dsA)).Resource)
	due, resources := b.begun()
	require.Equal(t, []schema.GroupResource{pods}, resources)
	b.answer(due, nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
}

func TestARelistConcernsThoseWhoReadIt(t *testing.T) {
	b := relistBench(t)
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	other := &hookedStore{}
	job := b.tracker.ForController("job", map[schema.GroupResource]Store{pods: b.pods, jobs: other}, func(types.NamespacedName) {})
	alone := b.tracker.ForController("hpa", map[schema.GroupResource]Store{pods: b.pods}, func(types.NamespacedName) {})
	other.relist("1", nil)
	other.relist("2", nil)
	require.NoError(t, b.c.EnsureReady(dsA))
	require.NoError(t, alone.EnsureReady(dsA), "it reads nothing beside")
	require.Equal(t, pods, requireNotReady(t, job.EnsureReady(dsA)).Resource)
	b.pods.relist("200", nil)
	require.NoError(t, alone.EnsureReady(dsA))
	requireNotReady(t, b.c.EnsureReady(dsA))
	due, resources := b.begun()
	require.ElementsMatch(t, []schema.GroupResource{pods, sets, jobs}, resources, "whoever waits already goes on waiting")
	b.answer(slices.DeleteFunc(due, func(p pendingProof) bool { return p.src.resource == jobs }), nil)
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, jobs, requireNotReady(t, job.EnsureReady(dsA)).Resource)
}

func TestWhatCanNeverBeProvenHoldsNobody(t *testing.T) {
	b := relistBench(t)
	b.pods.relist("200", nil)
	requireNotReady(t, b.c.EnsureReady(dsA))
	due, _ := b.begun()
	b.answer(due, fmt.Errorf("no right: %w", ErrUnprovable))
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, 1, b.metrics.count("droppedAbandoned"))
}

func TestARelistHoldsNobodyWithoutAProver(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.relist("100", nil)
	b.pods.relist("200", nil)
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Zero(t, b.c.busy.Load())
}

func TestAClearedOwnerDoesNotWaitForAProof(t *testing.T) {
	b := relistBench(t)
	b.pods.relist("200", nil)
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.c.Clear(dsA, "")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.Zero(t, b.c.table.count)
	due, _ := b.begun()
	b.answer(due, nil)
	require.Zero(t, b.c.busy.Load())
}

// slowProver takes its time, and counts.
type slowProver struct {
	mu       sync.Mutex
	calls    map[schema.GroupResource]int
	underWay map[schema.GroupResource]bool
	twice    bool
}

func (p *slowProver) Prove(_ context.Context, gr schema.GroupResource, _ time.Time) (func(context.Context), error) {
	p.mu.Lock()
	p.calls[gr]++
	p.twice = p.twice || p.underWay[gr]
	p.underWay[gr] = true
	p.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underWay[gr] = false
	return nil, nil
}

// counted returns how many proofs of each resource were made since the last call.
func (p *slowProver) counted() map[schema.GroupResource]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = map[schema.GroupResource]int{}
	return calls
}

// failingProver fails until it has been waited for.
type failingProver struct{ proofs, waits int }

func (p *failingProver) Prove(context.Context, schema.GroupResource, time.Time) (func(context.Context), error) {
	if p.proofs++; p.waits > 0 {
		return nil, nil
	}
	return func(ctx context.Context) {
		p.waits++
		time.Sleep(3 * time.Second)
	}, ErrStale
}

func TestAProofThatFailsIsTriedAgainWhenItMaySucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prover := &failingProver{}
		tr := New(Options{Prover: prover})
		a, b := &hookedStore{}, &hookedStore{}
		woken := make(chan types.NamespacedName, 1)
		c := tr.ForController("c", map[schema.GroupResource]Store{pods: a, sets: b}, func(n types.NamespacedName) { woken <- n })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { tr.Run(ctx) })
		synctest.Wait()
		a.relist("1", nil)
		b.relist("1", nil)
		a.relist("2", nil)
		requireNotReady(t, c.EnsureReady(dsA))
		synctest.Wait()
		require.True(t, tr.waiting()[0].ProvenStale, "before the wait is over")
		start := time.Now()
		require.Equal(t, dsA, <-woken)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, 2, prover.proofs)
		cancel()
		wg.Wait()
	})
}

func TestRelistsOfAMomentShareTheirProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const resources = 6
		prover := &slowProver{calls: map[schema.GroupResource]int{}, underWay: map[schema.GroupResource]bool{}}
		tr := New(Options{Prover: prover})
		stores, informers := map[schema.GroupResource]Store{}, make([]*hookedStore, resources)
		for i := range informers {
			informers[i] = &hookedStore{}
			stores[schema.GroupResource{Resource: fmt.Sprint(i)}] = informers[i]
		}
		woken := make(chan types.NamespacedName, 10)
		c := tr.ForController("c", stores, func(n types.NamespacedName) { woken <- n })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { tr.Run(ctx) })
		synctest.Wait()
		relistAll := func(rv string) {
			for _, informer := range informers {
				informer.relist(rv, nil)
				if rv != "1" {
					_ = c.EnsureReady(dsA)
					time.Sleep(time.Millisecond)
				}
			}
		}
		relistAll("1")
		require.NoError(t, c.EnsureReady(dsA))
		relistAll("2")
		start := time.Now()
		require.Equal(t, dsA, <-woken)
		require.LessOrEqual(t, time.Since(start), 10*time.Millisecond, "what is under way, and one proof more")
		require.NoError(t, c.EnsureReady(dsA))
		for gr, n := range prover.counted() {
			require.LessOrEqual(t, n, 3, "one for all that came while another was made: %s", gr)
		}
		require.False(t, prover.twice, "one at a time")

		// However often caches are relisted, the proofs keep to their pace.
		start = time.Now()
		for i := range 100 {
			relistAll(fmt.Sprint(3 + i))
		}
		for gr, n := range prover.counted() {
			require.LessOrEqual(t, n, 4+int(time.Since(start)/(100*time.Millisecond)), gr)
		}
		require.Equal(t, dsA, <-woken)

		// A proof that is under way ends with the tracker, and nobody is lost.
		relistAll("200")
		require.NotEmpty(t, tr.waiting())
		cancel()
		wg.Wait()
		require.Equal(t, dsA, <-woken)
		require.False(t, requireNotReady(t, c.EnsureReady(dsA)).Parked(), "nothing proves it any more")
	})
}
