// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	zoneNodes = 10
	// flaps of the second zone, each for less than the grace period.
	flaps = 4
	// taintRate is how many nodes a second may be tainted in a zone; upstream's is one in ten seconds.
	taintRate = 1
)

// One zone dies and another flaps, with and without news of leases. Whatever the arm, the reference is this: the
// nodes of the dead zone are marked once and tainted once, one a second, because other zones live; the flapping
// ones are never silent for long enough; and the zones' health is told so. Without a fault that holds on every
// arm. Without news of leases U0 marks everybody.
var (
	_ = describe(zones("", nil))
	_ = describe(zones(rig.U0, faultproxy.Hold{}))
)

func zones(hurts rig.Arm, effect faultproxy.Effect) scenario {
	title := "one zone dies, another flaps"
	if effect != nil {
		title += ", lease watch held"
	}
	return scenario{
		number: 10, title: title, label: long,
		hurts: hurts, rules: []string{oracle.RuleLiveMarked},
		options: shortTiming.rig(controlplane.NodeOptions{Count: 3 * zoneNodes, Zones: []string{"zone-a", "zone-b", "zone-c"}},
			fmt.Sprintf("--node-eviction-rate=%d", taintRate)), idle: true,
		timeout: 6 * time.Minute,
		run: func(ctx context.Context, r *run) {
			r.nodesKnown(ctx)
			inZone := [3][]string{}
			for i, node := range r.Cluster.Nodes().Names() {
				inZone[i%3] = append(inZone[i%3], node)
			}
			dead, flapping := inZone[0], inZone[1]
			r.kill(ctx, shortTiming, dead...)
			began := time.Now()
			var fault *faultproxy.Fault
			if effect != nil {
				fault = r.inject(leases, effect)
			}
			for range flaps {
				gomega.Expect(r.Cluster.Nodes().Kill(ctx, flapping...)).To(gomega.Succeed())
				r.passes(ctx, "the zone to be silent", time.Now(), shortTiming.renewal()*3/2)
				gomega.Expect(r.Cluster.Nodes().Revive(ctx, flapping...)).To(gomega.Succeed())
				r.passes(ctx, "the zone to live", time.Now(), shortTiming.renewal())
			}
			if fault != nil {
				r.proves(fault, zoneNodes, shortGrace+passPeriod)
			}
			r.marked(ctx, "dead zone", shortTiming, time.Time{}, dead...)
			r.zonesTold(ctx)
			if fault != nil {
				fault.Clear()
			}
			r.converges(ctx, "taints of the dead zone", time.Minute, func() error {
				if tainted := oracle.Tainted(r.Truth, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute); len(tainted) != zoneNodes {
					return fmt.Errorf("%d nodes are tainted, want %d", len(tainted), zoneNodes)
				}
				return nil
			})
			r.lived(shortTiming, began, time.Now(), append(flapping, inZone[2]...)...)
			r.likeReference(dead)
			r.budgeted("zones", began, time.Now())
			r.converges(ctx, "the living Ready", stepLimit, r.allReady(r.living()...))
		},
	}
}

// zonesTold judges what node lifecycle says of its zones: the metrics of one pass.
func (r *run) zonesTold(ctx context.Context) {
	want := map[string]float64{"zone-a": zoneNodes, "zone-b": 0, "zone-c": 0}
	r.converges(ctx, "the zones' health", stepLimit, func() error {
		for zone, unhealthy := range want {
			// The label is region, a colon, a NUL, a colon and zone.
			if got := series(ctx, r, "node_collector_unhealthy_nodes_in_zone", "zone=\":\x00:"+zone+"\""); got != unhealthy {
				return fmt.Errorf("%s has %v unhealthy nodes, want %v", zone, got, unhealthy)
			}
			if got := series(ctx, r, "node_collector_zone_size", "zone=\":\x00:"+zone+"\""); got != zoneNodes {
				return fmt.Errorf("%s has %v nodes, want %v", zone, got, zoneNodes)
			}
		}
		return nil
	})
}

// likeReference compares marks and taints with the reference.
func (r *run) likeReference(dead []string) {
	marks := oracle.Marks(r.Truth)
	tainted := oracle.Tainted(r.Truth, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	var first, last time.Time
	for _, node := range dead {
		if len(marks[node]) != 1 || len(tainted[node]) != 1 {
			r.violate(oracle.Violation{
				Oracle: "L", Rule: "marks and taints unlike the reference", Object: node, Time: time.Now(),
				Detail: fmt.Sprintf("marked %d times, tainted %d times", len(marks[node]), len(tainted[node])),
			})
			continue
		}
		at := tainted[node][0]
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	took := last.Sub(first)
	r.figure("taints, first to last", "%d in %v", len(tainted), rounded(took))
	// The rate limiter lets one go at once, and the next a second later.
	if least := time.Duration(zoneNodes-2) * time.Second / taintRate; took < least {
		r.violate(oracle.Violation{
			Oracle: "L", Rule: "tainted faster than the rate", Object: "zone-a", Time: last, Detail: fmt.Sprintf("%d nodes in %v", zoneNodes, took),
		})
	}
}
