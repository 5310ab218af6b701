// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

func TestFirstProbe(t *testing.T) {
	b := newServer(t).breaker()
	now := metav1.Now()
	for age, trusted := range map[time.Duration]bool{0: false, 5 * time.Minute: false, -5 * time.Minute: false, 24 * time.Hour: true, -24 * time.Hour: true} {
		created := metav1.NewTime(now.Add(-age))
		want := now
		if trusted {
			want = created
		}
		require.Equal(t, want, b.FirstProbe(created, now), age)
	}
}

func TestProveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newServer(t)
		s.ready("a", corev1.ConditionFalse)
		b := s.breaker()
		require.NoError(t, b.ProveNode(ctx, "a", corev1.ConditionFalse))
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionUnknown), errChanged)
		require.ErrorIs(t, b.ProveNode(ctx, "gone", corev1.ConditionFalse), errChanged)
		require.Zero(t, s.gets, "the cache is proven fresh")

		s.freeze(true)
		s.ready("a", corev1.ConditionTrue)
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), errChanged, "the cache still says False")
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), errChanged)
		require.Equal(t, 1, s.gets, "a read is good for two seconds")
		time.Sleep(nodeAge + 1)
		s.ready("a", corev1.ConditionFalse)
		require.NoError(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), "live it is False again")
		require.Equal(t, 2, s.gets)
		time.Sleep(nodeAge + 1)
		require.ErrorIs(t, b.ProveNode(ctx, "gone", corev1.ConditionFalse), errChanged)

		time.Sleep(nodeAge + 1)
		s.getErr = errors.New("no server")
		err := b.ProveNode(ctx, "a", corev1.ConditionFalse)
		require.ErrorContains(t, err, "no server")
		require.NotErrorIs(t, err, errChanged)
		s.getErr = nil
		b.opts.Budget = livereads.NewBudget(rate.Limit(0.001), 1)
		require.NoError(t, b.opts.Budget.Take(ctx, "another", nodesResource))
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), context.DeadlineExceeded, "the budget is spent")
	})
}

// On a slow server each proof comes after who asked for it has gone. The one that was asked for first counts when it is asked for again, but not
// for ever, nor for another condition.
func TestProveNodeOnASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newServer(t)
		s.ready("a", corev1.ConditionFalse)
		s.fence, s.latency, s.getErr = 10*time.Second, readTimeout, context.DeadlineExceeded
		b := s.breaker()
		try := func(seen corev1.ConditionStatus) error {
			time.Sleep(every)
			b.BeginPass(ctx)
			return b.ProveNode(ctx, "a", seen)
		}
		require.Error(t, try(corev1.ConditionFalse))
		require.NoError(t, try(corev1.ConditionFalse), "what was asked for first is there")
		require.Error(t, try(corev1.ConditionFalse), "the next action needs a proof of its own")

		s.ready("a", corev1.ConditionTrue)
		b.BeginPass(ctx)
		s.ready("a", corev1.ConditionFalse)
		require.Error(t, try(corev1.ConditionFalse), "it was ready meanwhile")

		require.NoError(t, try(corev1.ConditionFalse))
		s.fence = time.Hour
		require.Error(t, try(corev1.ConditionFalse))
		time.Sleep(putOffAge)
		require.Equal(t, time.Now().Add(-nodeAge), b.asOf(condition{"a", corev1.ConditionFalse}), "that was too long ago")
	})
}

// A node that was just confirmed dead, and so was marked Unknown by the pass itself, needs no proof;
// but only to act on that, and only in that pass.
func TestConfirmedDeadNeedsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		s.ready("a", corev1.ConditionTrue)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.True(t, dead)
		require.NoError(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown))
		require.ErrorIs(t, b.ProveNode(t.Context(), "a", corev1.ConditionFalse), errChanged)
		b.BeginPass(t.Context())
		require.ErrorIs(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown), errChanged)
	})
}

// That a node was dead two seconds ago says no more than any other old proof.
func TestConfirmedDeadGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		s.ready("a", corev1.ConditionTrue)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.True(t, dead)
		time.Sleep(nodeAge)
		require.NoError(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown), errChanged, "the server says that it is Ready")
		s.ready("a", corev1.ConditionUnknown)
		require.NoError(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown))
	})
}

// A pass over a thousand NotReady nodes whose cache cannot be proven waits for one proof that does not come, and not for one each.
func TestNodesWithoutAProofAreAskedAboutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		b := s.breaker()
		b.opts.Budget = livereads.NewBudget(rate.Inf, 1)
		s.getErr = errors.New("no server")
		b.opts.Prove = func(context.Context, schema.GroupResource, time.Time) freshness.Proof {
			s.proofs++
			time.Sleep(500 * time.Millisecond)
			return freshness.Proof{Outcome: freshness.Unknown}
		}
		for pass := range 2 {
			start := time.Now()
			b.BeginPass(t.Context())
			for i := range 1000 {
				require.Error(t, b.ProveNode(t.Context(), name(i), corev1.ConditionFalse))
			}
			require.Equal(t, 500*time.Millisecond, time.Since(start))
			require.Equal(t, pass+1, s.proofs)
			time.Sleep(proofRetry)
		}
	})
}

// All workers of a pass share one list, and its pages are one read each.
func TestOneListForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		const n = 2*pageSize + 1
		for i := range n {
			s.renew(name(i), 0)
		}
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		b := s.breaker()
		b.BeginPass(t.Context())
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				dead, _, _ := b.ConfirmDead(t.Context(), name(i), s.cached[name(i)], time.Second)
				require.True(t, dead)
			})
		}
		wg.Wait()
		require.Equal(t, 1, s.lists)
		require.Equal(t, 3, s.reads)
		time.Sleep(every)
		b.BeginPass(t.Context())
		dead, lease, _ := b.ConfirmDead(t.Context(), name(0), s.cached[name(0)], time.Millisecond)
		require.False(t, dead || lease != nil, "three pages: the next list is due after 6 s")
	})
}

// While the nodes cannot be proven and the budget is spent, a pass over many nodes does not wait for
// each of them.
func TestNodeReadsDoNotStopAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.freeze(true)
		b := s.breaker()
		b.opts.Budget = livereads.NewBudget(rate.Limit(0.001), 1)
		require.NoError(t, b.opts.Budget.Take(t.Context(), "another", nodesResource))
		start := time.Now()
		var wg sync.WaitGroup
		work := make(chan int)
		for range 2 * nodeReads {
			wg.Go(func() {
				for i := range work {
					require.Error(t, b.ProveNode(t.Context(), name(i), corev1.ConditionFalse))
				}
			})
		}
		for i := range 300 {
			work <- i
		}
		close(work)
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 2*readTimeout)
		require.Zero(t, b.reading)
	})
}

// A lease that was read on its own says nothing of a node whose grace ran out later.
func TestOlderReadConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		s.listErr = apierrors.NewForbidden(leasesResource, "", nil)
		saved := s.renew("a", 0)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, 0)
		require.True(t, dead)
		time.Sleep(every)
		renewed := s.renew("a", 0)
		b.BeginPass(t.Context())
		dead, lease, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.False(t, dead)
		require.Equal(t, renewed, lease)
	})
}
