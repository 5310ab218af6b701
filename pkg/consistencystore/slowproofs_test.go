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
	long   time.Duration
	method string
}

func (p *takes) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	asked := time.Now()
	time.Sleep(p.long)
	return freshness.Proof{Resource: resource.WithVersion(""), Outcome: freshness.Proven, At: asked, Method: p.method}
}

// A proof that took long counts for as long as one may be old from when it came, for all controllers, but not where none may be older than what was read.
func TestAProofThatTookLongCountsFromWhenItCame(t *testing.T) {
	for name, c := range map[string]struct {
		long, later, age time.Duration
		// since is how long before the reconcile a proof has to have been made at least.
		since time.Duration
		// method is how it was proven.
		method string
	}{
		"it was fast":                             {promptly, time.Second, ProofAge, ProofAge, "Fence"},
		"it has just come":                        {5 * time.Second, 0, ProofAge, 5 * time.Second, "Fence"},
		"the cache had to catch up":               {5 * time.Second, 0, ProofAge, ProofAge, "Wait"},
		"it came as long ago as one may be old":   {5 * time.Second, ProofAge, ProofAge, 5*time.Second + ProofAge, "Fence"},
		"it came before that":                     {5 * time.Second, ProofAge + 1, ProofAge, ProofAge, "Fence"},
		"none may be older":                       {5 * time.Second, 0, 0, 0, "Fence"},
		"it took less than one may be old in all": {promptly + 1, 0, ProofAge, ProofAge, "Watch"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := &Term{}
				first := &answers{Prover: &takes{long: c.long, method: c.method}, slow: &term.slowProofs}
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
