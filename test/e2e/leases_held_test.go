// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// deafNodes is how many nodes there are where the news of their leases stays away: few enough that kwok renews them in time on a slow
// machine, beside three other clusters.
const deafNodes = 100

// The news of leases stays away for longer than the grace period while every node is alive. U0 marks them
// all. U1 stops at the first lease that it reads live and finds newer; it is not hurt where no node dies.
//
// In the third one the stream is half open: the client's side gets no byte, nor an end, and pings on its
// connection are answered, so that nothing but the server's time-out of five to ten minutes would end it.
var (
	//conformance:kep-5647 Circuit Breaking Pattern in Controllers: node lifecycle reads leases live before it marks a node
	_ = describe(deaf(deafness{number: 6, how: "lease watch held past the grace period", label: ordinary,
		nodes: deafNodes, timing: shortTiming, lasts: shortTiming.overGrace(), effect: faultproxy.Hold{}, incident: "85221"}))
	_ = describe(deaf(deafness{number: 6, how: "lease watch held for 2 min, default grace period, 1,000 nodes", label: long,
		nodes: 1000, alone: true, timing: defaultTiming, lasts: 2 * time.Minute, effect: faultproxy.Hold{}, incident: "85221"}))
	_ = describe(deaf(deafness{number: 11, how: "lease watch half open past the grace period", label: ordinary,
		nodes: 100, timing: quickTiming, lasts: quickTiming.overGrace(), effect: faultproxy.DropStream{}, incident: "gardener-15708"}))
)

// deafness is a time without news of leases.
type deafness struct {
	number     int
	how, label string
	nodes      int
	alone      bool
	timing     nodeTiming
	lasts      time.Duration
	effect     faultproxy.Effect
	incident   string
}

func deaf(d deafness) scenario {
	return scenario{
		number: d.number, title: fmt.Sprintf("%s, all nodes alive", d.how), label: d.label,
		incidents: []string{d.incident},
		hurts:     rig.U0, rules: []string{oracle.RuleLiveMarked}, mutants: ifOrdinary(d.label, without{"lease-proof", oracle.RuleLiveMarked}),
		options: d.timing.rig(controlplane.NodeOptions{Count: d.nodes}), idle: true, alone: d.alone,
		timeout: 4*time.Minute + d.lasts,
		run: func(ctx context.Context, r *run) {
			r.nodesKnown(ctx)
			nodes := r.Cluster.Nodes().Names()
			// Streams that are opened later are half open, too: the controllers list nothing anew for it.
			fault := r.inject(leases, d.effect)
			began := fault.Stats().Since
			r.passes(ctx, "the fault to last", began, d.lasts)
			r.silenced(d.effect, fault, d.nodes, d.lasts)
			fault.Clear()
			cleared := time.Now()
			r.lived(d.timing, began, cleared, nodes...)
			// Whatever is still to come of what was decided before, comes in the next pass.
			r.passes(ctx, "the pass after it", cleared, passPeriod)
			r.told(ctx, truth.Leases)
			r.budgeted("all alive", began, time.Now())
			r.figure("L after", "%v", rounded(r.converges(ctx, "all nodes Ready", 2*stepLimit, r.allReady(nodes...))))
		},
	}
}

// silenced is V: the fault kept at least one renewal of every node from the KCM.
func (r *run) silenced(effect faultproxy.Effect, fault *faultproxy.Fault, nodes int, lasted time.Duration) {
	renewals := nodes
	if _, half := effect.(faultproxy.DropStream); half {
		// The stream is abandoned, so there are no renewals to count.
		renewals = 0
		r.figure("V half-open streams", "%d", fault.Stats().Streams)
		if fault.Stats().Streams == 0 {
			r.unproven = append(r.unproven, "no stream was left half open")
		}
	}
	r.proves(fault, renewals, lasted)
}
