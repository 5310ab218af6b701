// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

func TestProvenWithin(t *testing.T) {
	unknown, stale := Proof{Outcome: Unknown, Reason: reasonServerError}, Proof{Outcome: Stale, ResourceVersion: "9"}
	down, gone := Proof{Outcome: Unknown, Reason: ReasonNoServer}, Proof{Outcome: Unknown, Reason: ReasonNotFound}
	limits := rvtracker.Limits{Unknown: 10 * time.Second, Stale: time.Minute}
	after := func(at time.Duration, before, then Proof) func(time.Duration) Proof {
		return func(now time.Duration) Proof {
			if now < at {
				return before
			}
			return then
		}
	}
	for name, c := range map[string]struct {
		answer func(time.Duration) Proof
		takes  time.Duration
		cut    bool
		nobody time.Duration // from when on nobody waits
		want   Outcome
		ends   time.Duration
	}{
		"proven at once":            {answer: after(0, unknown, Proof{Outcome: Proven}), want: Proven},
		"proven in time":            {answer: after(5*time.Second, unknown, Proof{Outcome: Proven}), want: Proven, ends: 5 * time.Second},
		"never known":               {answer: after(0, unknown, unknown), want: Unknown, ends: limits.Unknown},
		"never fresh":               {answer: after(0, stale, stale), want: Stale, ends: limits.Stale},
		"stale, then unknown":       {answer: after(5*time.Second, stale, unknown), want: Stale, ends: limits.Stale},
		"stale, then fresh":         {answer: after(30*time.Second, stale, Proof{Outcome: Proven}), want: Proven, ends: 30 * time.Second},
		"unknown, then stale":       {answer: after(9*time.Second, unknown, stale), want: Stale, ends: limits.Stale},
		"cannot ever be proven":     {answer: after(3*time.Second, unknown, gone), want: Unknown, ends: 3 * time.Second},
		"no time counts":            {answer: after(time.Hour, down, unknown), want: Unknown, ends: time.Hour + limits.Unknown - time.Second},
		"nobody waits any more":     {answer: after(0, stale, stale), nobody: 7 * time.Second, want: Stale, ends: 7 * time.Second},
		"a request that takes long": {answer: after(0, unknown, unknown), takes: time.Minute, want: Unknown, ends: time.Minute},
		"one that is cut":           {answer: after(0, unknown, unknown), takes: time.Minute, cut: true, want: Unknown, ends: limits.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				p := &Patience{Limits: limits, Since: began, Cut: c.cut,
					Prove: func(ctx context.Context, _ schema.GroupResource, asOf time.Time) Proof {
						require.Equal(t, began, asOf)
						if c.takes > 0 { // With the race detector, Go 1.26 has crashed in a timer that is due at once.
							select {
							case <-ctx.Done():
							case <-time.After(c.takes):
							}
						}
						return c.answer(time.Since(began))
					},
					Pause: func(ctx context.Context, _ schema.GroupResource, _ Proof) {
						select {
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
					},
					Uncounted: func(proof Proof) bool { return proof.Reason == ReasonNoServer },
					Waiting:   func(Proof) bool { return c.nobody == 0 || time.Since(began) < c.nobody },
				}
				require.Equal(t, c.want, p.ProvenWithin(t.Context(), schema.GroupResource{Resource: "pods"}, began).Outcome)
				require.Equal(t, c.ends, time.Since(began))
			})
		})
	}
}
