// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	blackoutLasts = 5 * time.Minute
	// blackoutHealed is how soon after it all caches must be fresh again: the monitor asks every 40 s by then, and
	// a watch is given up 45 s after its last byte at the latest.
	blackoutHealed = time.Minute
	// allKnownBad is how soon in it no cache may be called fresh or quiet any more.
	allKnownBad = 40 * time.Second
)

// No byte passes between the KCM and the apiserver for 5 min. That is not the caches' fault, so none may be called
// stalled without proof, but none may be called fresh either; and all come back without a restart.
var _ = describe(scenario{
	number: 13, title: "black-holed for 5 min: every cache's age is told, and all are fresh again", label: long, gate: gates.MonitorInformerStaleness, mutants: []without{{"age", ruleDishonest}},
	options: rig.Options{
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}},
		KCMArgs: []string{"--leader-elect-lease-duration=400s", "--leader-elect-renew-deadline=390s", "--leader-elect-retry-period=2s"},
	}, idle: true,
	timeout: 10 * time.Minute,
	run: func(ctx context.Context, r *run) {
		if r.Arm != rig.P {
			r.untold(ctx)
			return
		}
		stop := churn(ctx, r)
		defer stop()
		r.measured(ctx)
		caches := len(readStalenessz(ctx, r).Caches)
		hole := r.Proxy.BlackHole()
		began := hole.Stats().Since
		var noneGood time.Duration
		seen := map[stalenessmonitor.State]int{}
		alerts := map[string]time.Duration{}
		for time.Since(began) < blackoutLasts && ctx.Err() == nil {
			z := readStalenessz(ctx, r)
			good := 0
			for _, c := range z.Caches {
				seen[c.State]++
				if complete(c.State) {
					good++
				}
				// What the bytes before it can have proven.
				if in := z.Time.Sub(began); c.AgeSeconds != nil && *c.AgeSeconds < (in-time.Second).Seconds() {
					r.violate(oracle.Violation{Oracle: "M", Rule: ruleDishonest, Object: c.Resource, Time: z.Time, Detail: fmt.Sprintf("published %.1fs, %v into the blackout", *c.AgeSeconds, in)})
				}
				if c.AgeSeconds != nil && *c.AgeSeconds > 120 && alerts["InformerCacheOld pending"] == 0 {
					alerts["InformerCacheOld pending"] = z.Time.Sub(began)
				}
				if c.State == stalenessmonitor.Stalled && time.Since(c.Since) > time.Minute && alerts["InformerCacheStalled"] == 0 {
					alerts["InformerCacheStalled"] = z.Time.Sub(began)
				}
			}
			switch {
			case good > 0:
				noneGood = 0
			case noneGood == 0:
				noneGood = z.Time.Sub(began)
			}
			time.Sleep(lookEvery)
		}
		r.figure("blackout: states seen", "%v", seen)
		for _, alert := range slices.Sorted(maps.Keys(alerts)) {
			r.figure("blackout: "+alert, "after %.0fs", alerts[alert].Seconds())
		}
		r.figure("blackout: no cache called good after", "%.1fs", noneGood.Seconds())
		if noneGood == 0 || noneGood > allKnownBad {
			r.violate(oracle.Violation{Oracle: "M", Rule: "called fresh in a blackout", Time: time.Now(), Detail: noneGood.String()})
		}
		if s := hole.Stats(); s.Streams == 0 {
			r.unproven = append(r.unproven, "no connection was frozen")
		}
		hole.Clear()
		cleared := time.Now()
		var bad string
		err := rig.Wait(ctx, 2*blackoutHealed, "all caches to be fresh again", func() (bool, error) {
			z := readStalenessz(ctx, r)
			bad = ""
			for _, c := range z.Caches {
				if !complete(c.State) {
					bad += fmt.Sprintf(" %s:%s(%s)", c.Resource, c.State, c.Reason)
				}
			}
			time.Sleep(noticeEvery)
			return bad == "" && len(z.Caches) >= caches, nil
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), bad)
		took := time.Since(cleared)
		r.figure("blackout: all caches fresh again after", "%.1fs", took.Seconds())
		if took > blackoutHealed {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleEnd, Object: "all caches fresh", Time: time.Now(), Detail: took.String()})
		}
		r.told(ctx, truth.Pods)
	},
})
