// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// brokenProver fails for one resource, as when one of its objects cannot be listed.
type brokenProver struct {
	mu     sync.Mutex
	err    error
	proofs int
}

func (p *brokenProver) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.proofs = err, 0
}

func (p *brokenProver) made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proofs
}

func (p *brokenProver) Prove(_ context.Context, gr schema.GroupResource, _ time.Time) (func(context.Context), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gr != sets || p.err == nil {
		return nil, nil
	}
	p.proofs++
	return func(context.Context) { time.Sleep(time.Second) }, p.err
}

func TestARelistHoldIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		failure error
		limit   time.Duration
	}{
		"cannot be listed": {errors.New("500"), time.Minute},
		"stays stale":      {ErrStale, 5 * time.Minute},
	} {
		failure := tc.failure
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prover, metrics := &brokenProver{err: failure}, newRecorder()
				podStore, setStore := &hookedStore{}, &hookedStore{}
				woken, reports := make(chan types.NamespacedName, 9), make(chan Wait, 9)
				tr := New(Options{Prover: prover, Metrics: metrics, OnStale: func(w Wait) { reports <- w }})
				c := tr.ForController("daemonset", map[schema.GroupResource]Store{pods: podStore, sets: setStore},
					func(n types.NamespacedName) { woken <- n })
				other := tr.ForController("statefulset", map[schema.GroupResource]Store{pods: podStore, sets: setStore}, func(types.NamespacedName) {})
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { tr.Run(ctx) })
				synctest.Wait()
				podStore.relist("1", nil)
				setStore.relist("1", nil)

				podStore.relist("2", nil)
				time.Sleep(time.Hour)
				require.Empty(t, c.Unproven(), "nobody has waited")
				start := time.Now()
				require.Equal(t, whyUnproven, requireNotReady(t, c.EnsureReady(dsA)).Why)
				for range 4 { // More relists do not prolong it.
					time.Sleep(10 * time.Second)
					podStore.relist("3", nil)
				}
				select {
				case owner := <-woken:
					require.Equal(t, dsA, owner)
				case <-time.After(10 * time.Minute):
					t.Error("held without end")
					cancel()
					wg.Wait()
					return
				}
				require.InDelta(t, tc.limit, time.Since(start), float64(2*time.Second))
				require.NoError(t, c.EnsureReady(dsA), "repair goes on")
				require.NoError(t, other.EnsureReady(dsB), "of all who read it")
				require.Equal(t, whyUnproven, (<-reports).Why, "the reason is reported")
				require.Equal(t, []schema.GroupResource{sets}, c.Unproven(), "disruptive actions have to ask")
				require.Equal(t, 1, metrics.waits[outcomeAbandoned])
				require.Equal(t, 2, metrics.count("droppedAbandoned"), "once for each controller")

				// As long as that lasts no other relist holds anybody, and the server is seldom asked.
				prover.set(failure)
				for range 10 {
					podStore.relist("4", nil)
					require.NoError(t, c.EnsureReady(dsA))
					time.Sleep(time.Minute)
				}
				require.InDelta(t, 20, prover.made(), 2)

				prover.set(nil)
				time.Sleep(32 * time.Second)
				require.Empty(t, c.Unproven())
				prover.set(failure)
				podStore.relist("5", nil)
				require.Equal(t, whyUnproven, requireNotReady(t, c.EnsureReady(dsA)).Why, "it is proven again")
				prover.set(nil)
				require.Equal(t, dsA, <-woken)
				synctest.Wait()
				require.Zero(t, c.busy.Load())
				require.Zero(t, c.blocked.Load())
				cancel()
				wg.Wait()
			})
		})
	}
}
