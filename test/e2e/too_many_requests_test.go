// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	refusedNodes = 100
	refusedDead  = 5
	// refusedBound is how many refused requests a minute are bearable: the budget of live reads and a fence
	// of one resource every 5 s, each retried once, and what the informers ask.
	refusedBound = 2*(liveReadBudget+12) + 30
)

// Leases can neither be watched nor listed nor read: everything is answered 429. U0 asks nobody and marks all.
var _ = describe(leasesRefused(21, "429 on watches, lists and live reads of leases past the grace period",
	faultproxy.TooManyRequests{RetryAfter: time.Second}))

// leasesRefused refuses what keeps a cache of leases complete. Some nodes are dead. Nobody may be taken for dead
// who cannot be asked for, and the dead must be found when the fault is healed at the latest.
func leasesRefused(number int, title string, refusal faultproxy.Effect) scenario {
	return scenario{
		number: number, title: title, label: long,
		hurts: rig.U0, rules: []string{oracle.RuleLiveMarked}, mutants: []without{{"lease-proof", oracle.RuleLiveMarked}},
		options: shortTiming.rig(controlplane.NodeOptions{Count: refusedNodes}), idle: true,
		timeout: 6 * time.Minute,
		run: func(ctx context.Context, r *run) {
			lasts := shortTiming.overGrace() + 2*passPeriod
			r.nodesKnown(ctx)
			dead := r.Cluster.Nodes().Names()[:refusedDead]
			r.killNow(ctx, shortTiming, dead...)

			// The KCM's own lease, for leader election, is left alone.
			refused := r.inject(faultproxy.Target{Resource: truth.Leases, Match: func(r faultproxy.Request) bool {
				return r.Namespace != metav1.NamespaceSystem
			}}, refusal)
			ended := r.inject(faultproxy.Target{Resource: truth.Leases, Running: true}, faultproxy.Gone{})
			began := refused.Stats().Since
			r.passes(ctx, "the fault to last", began, lasts)
			r.proves(refused, 3, lasts)
			if ended.Stats().Streams == 0 {
				r.unproven = append(r.unproven, "no watch was ended")
			}
			if r.Arm == rig.P {
				r.shownWaiting(ctx, "nodelifecycle", "silent nodes")
			}
			r.bounded("refused requests", refused.Stats().Requests, time.Since(began))
			refused.Clear()
			healed := time.Now()
			r.lived(shortTiming, began, healed, r.living()...)

			r.marked(ctx, "the dead", shortTiming, healed, dead...)
			r.passes(ctx, "the passes after it", healed, 2*passPeriod)
			r.budgeted("refused", began, time.Now())
			r.figure("L after", "%v", rounded(r.converges(ctx, "the living Ready", 2*stepLimit, r.allReady(r.living()...))))
		},
	}
}

// bounded judges how many requests a minute were refused.
func (r *run) bounded(what string, requests int, took time.Duration) {
	perMinute := float64(requests) / took.Minutes()
	r.figure(what+" a minute", "%.0f", perMinute)
	if perMinute > refusedBound {
		r.violate(oracle.Violation{Oracle: "G", Rule: "refused requests over the bound", Object: what, Time: time.Now()})
	}
}
