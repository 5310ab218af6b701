// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

func TestAProofIsAskedForAgainWhenTheAnswerSays(t *testing.T) {
	down := freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNoServer}
	soon := down
	soon.RetryAfter = 80 * time.Millisecond
	for proof, want := range map[freshness.Proof]time.Duration{soon: soon.RetryAfter, down: retryUnproven, {Outcome: freshness.Stale, Events: 3}: retryStale} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			p := proofsOf(t)
			defer p.prover.Close()
			p.Wait(t.Context(), nodes, proof)
			require.Equal(t, want, time.Since(start), proof.String())
		})
	}
}

// As after a 410: the list that brings the cache to the version ends the wait.
func TestAWaitForAnUnprovenCacheEndsWithItsRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tracker := rvtracker.New(rvtracker.Options{})
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		source := tracker.Register(nodes, store)
		go tracker.Run(ctx)
		synctest.Wait()
		gone := freshness.Proof{Outcome: freshness.Unknown, Reason: "Gone", ResourceVersion: "5", RetryAfter: time.Second}
		time.AfterFunc(10*time.Millisecond, func() { _ = store.Replace(nil, "5") })
		start := time.Now()
		p := proofsOf(t)
		defer p.prover.Close()
		p.prover.Track(nodes.WithVersion("v1"), store, source)
		p.Wait(ctx, nodes, gone)
		require.Less(t, time.Since(start), 100*time.Millisecond)
		cancel()
		synctest.Wait()
	})
}

func proofsOf(t *testing.T) *proofs {
	t.Helper()
	p, err := newProofs(&rest.Config{Host: "http://127.0.0.1:1"}, meta.NewDefaultRESTMapper(nil))
	require.NoError(t, err)
	return p
}
