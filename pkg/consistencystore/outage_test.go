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
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// answer is what a prover answers from a time on.
type answer struct {
	from  time.Duration
	proof freshness.Proof
}

// timeline gives its answers one after the other. They are in the order of their times.
type timeline struct {
	verdicts
	began   time.Time
	answers []answer
}

func (p *timeline) Prove(context.Context, schema.GroupResource, time.Time) (proof freshness.Proof) {
	for _, a := range p.answers {
		if time.Since(p.began) >= a.from {
			proof = a.proof
		}
	}
	return proof
}

// An outage does not make a cache less stale than it was shown to be.
func TestAStaleCacheCountsAsStaleInAnOutage(t *testing.T) {
	const before = 55 * time.Second
	for name, c := range map[string]struct {
		answers    []answer
		waits, end time.Duration // since the first answer
	}{
		"it is proven after it":      {answers: []answer{{0, stale}, {before, down}, {2 * time.Minute, fresh}}, end: 2 * time.Minute},
		"it does not end":            {answers: []answer{{0, stale}, {before, down}}, end: rvtracker.OwnerLimits.Stale},
		"the wait begins in it":      {answers: []answer{{0, stale}, {before, down}}, waits: 2 * time.Minute, end: before + rvtracker.OwnerLimits.Stale},
		"the wait begins long after": {answers: []answer{{0, stale}, {before, down}}, waits: 7 * time.Minute, end: 7*time.Minute + rvtracker.OwnerLimits.Unknown},
		"it was proven before it":    {answers: []answer{{0, stale}, {before, fresh}, {before + 2*time.Second, down}}, waits: time.Minute, end: time.Minute + rvtracker.OwnerLimits.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				store, queue := readingStore(t.Context(), &timeline{began: began, answers: c.answers})
				for c.waits > 0 && time.Since(began) < min(c.waits, before+2*time.Second) { // Another value is decided meanwhile.
					store.prover.Prove(t.Context(), pods, time.Now())
					time.Sleep(time.Second)
				}
				time.Sleep(time.Until(began.Add(c.waits)))
				for consistency.ProvePass(consistency.WithReading(t.Context(), store, "ns/quota"), "pods", pods) != nil {
					require.Less(t, time.Since(began), 10*time.Minute)
					require.Equal(t, "ns/quota", <-queue)
				}
				require.InDelta(t, c.end.Seconds(), time.Since(began).Seconds(), 2)
				time.Sleep(2 * time.Second)
				synctest.Wait()
			})
		})
	}
}
