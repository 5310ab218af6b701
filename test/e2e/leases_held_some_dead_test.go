// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// Of deafNodes 5 % die: so many before their leases' news stays away, which the cache shows as they are,
	// and so many after it, of which it shows a sign of life too few.
	diedBefore, diedDuring = 3, 2
)

// The lease watch is held past the grace period, and some nodes are truly dead. Those that were silent
// before must be marked in time although no news of leases comes, the others in time after it has come. U0 marks
// everybody. U1 reads the lease of every dead node in every pass.
//
//conformance:kep-5647 Circuit Breaking Pattern in Controllers: a cache that was found stale does not cost a read for each node
var _ = describe(scenario{
	number: 7, title: "lease watch held past the grace period, 5 % of the nodes dead", label: ordinary,
	hurts: rig.U0, rules: []string{oracle.RuleLiveMarked}, mutants: []without{{"lease-proof", oracle.RuleLiveMarked}, {"live-list", oracle.RuleMarkedLate}},
	options: shortTiming.rig(controlplane.NodeOptions{Count: deafNodes}), idle: true,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		lasts := shortTiming.overGrace()
		r.nodesKnown(ctx)
		nodes := r.Cluster.Nodes().Names()
		before, during := nodes[:diedBefore], nodes[diedBefore:diedBefore+diedDuring]
		r.kill(ctx, shortTiming, before...)

		fault := r.inject(leases, faultproxy.Hold{})
		began := fault.Stats().Since
		r.killNow(ctx, shortTiming, during...)
		r.passes(ctx, "the fault to last", began, lasts)
		r.proves(fault, deafNodes, lasts)
		fault.Clear()
		healed := time.Now()
		r.lived(shortTiming, began, healed, r.living()...)

		r.marked(ctx, "died before", shortTiming, time.Time{}, before...)
		r.marked(ctx, "died during", shortTiming, healed, during...)
		r.late(ctx, shortTiming)
		r.passes(ctx, "the passes after it", healed, 2*passPeriod)
		r.budgeted("5 % dead", began, time.Now())
		r.figure("L after", "%v", rounded(r.converges(ctx, "the living Ready", 2*stepLimit, r.allReady(r.living()...))))
	},
})
