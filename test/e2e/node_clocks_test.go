// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Clocks of living nodes are set: back by 5 min, back by 10 min, and ahead by an hour and right again later. They
// renew their leases all the time (kubernetes/kubernetes#113081). U0 takes them for dead until the clock has reached
// where it was before; U1 reads their leases in every pass and marks none. kwok knows no other clock than its
// own, so the scenario renews these nodes' leases in its place.
var _ = describe(scenario{
	number: 8, title: "clocks of nodes set back", label: ordinary,
	incidents: []string{"113081"},
	hurts:     rig.U0, rules: []string{oracle.RuleLiveMarked}, mutants: []without{{"clock-back", oracle.RuleLiveMarked}},
	options: quickTiming.rig(controlplane.NodeOptions{Count: 10}), idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.nodesKnown(ctx)
		nodes := r.Cluster.Nodes().Names()[:3]
		r.kill(ctx, quickTiming, nodes...) // kwok is silent about them from now on
		r.deaths.Nodes = sets.New[string]()
		began := time.Now()
		skews := func() []time.Duration {
			switch since := time.Since(began); {
			case since < quickTiming.grace/2:
				return []time.Duration{0, 0, time.Hour}
			case since < quickTiming.grace:
				return []time.Duration{-5 * time.Minute, -10 * time.Minute, time.Hour}
			}
			return []time.Duration{-5 * time.Minute, -10 * time.Minute, 0}
		}
		stop := every(ctx, quickTiming.renewal(), func(ctx context.Context, _ int) error {
			for i, skew := range skews() {
				patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().Add(skew).UTC().Format(metav1.RFC3339Micro))
				if _, err := r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, nodes[i], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return fmt.Errorf("renewing the lease of %s: %w", nodes[i], err)
				}
			}
			return nil
		})
		r.passes(ctx, "the clocks to be wrong for long enough", began, quickTiming.grace+quickTiming.overGrace()+passPeriod)
		r.told(ctx, truth.Leases)
		r.lived(quickTiming, began, time.Now(), r.Cluster.Nodes().Names()...)
		r.budgeted("clocks set", began, time.Now())
		r.converges(ctx, "all Ready", stepLimit, r.allReady(r.Cluster.Nodes().Names()...))
		stop()
		gomega.Expect(r.Cluster.Nodes().Revive(ctx, nodes...)).To(gomega.Succeed())
	},
})
