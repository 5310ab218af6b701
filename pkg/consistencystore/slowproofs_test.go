// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// takes proves all as of when it is asked, after so long.
type takes struct {
	Prover
	long time.Duration
}

func (p *takes) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	asked := time.Now()
	time.Sleep(p.long)
	return freshness.Proof{Resource: resource.WithVersion(""), Outcome: freshness.Proven, At: asked}
}

// A proof that took long counts for as long as one may be old from when it came, for all controllers, but not where none may be older than what was read.
func TestAProofThatTookLongCountsFromWhenItCame(t *testing.T) {
	for name, c := range map[string]struct {
		long, later, age time.Duration
		// since is how long before the reconcile a proof has to have been made at least.
		since time.Duration
	}{
		"it was fast":                             {promptly, time.Second, ProofAge, ProofAge},
		"it has just come":                        {5 * time.Second, 0, ProofAge, 5 * time.Second},
		"it came as long ago as one may be old":   {5 * time.Second, ProofAge, ProofAge, 5*time.Second + ProofAge},
		"it came before that":                     {5 * time.Second, ProofAge + 1, ProofAge, ProofAge},
		"none may be older":                       {5 * time.Second, 0, 0, 0},
		"it took less than one may be old in all": {promptly + 1, 0, ProofAge, ProofAge},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := &Term{}
				first := &answers{Prover: &takes{long: c.long}, slow: &term.slowProofs}
				require.True(t, first.Prove(t.Context(), pods, time.Now()).Fresh())
				time.Sleep(c.later)
				second := &Store{slowProofs: &term.slowProofs, held: newHolds("second")}
				owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
				require.Equal(t, c.since, time.Since(second.asOf(owner, pods, time.Now(), c.age)))
				require.Equal(t, c.age, time.Since(second.asOf(owner, nodeResource, time.Now(), c.age)), "another resource")
			})
		})
	}
}
