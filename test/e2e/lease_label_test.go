// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// editEvery is how often a label of the lease is changed: more often than the grace period runs out.
const editEvery = 2 * time.Second

// A label is put on the lease of a dead node, and changed again and again. That is no heartbeat, but U1 compares
// resource versions: it takes its cache for stale, finds it fresh in the next pass, and so on; one edit is enough for
// that (gap 3).
var _ = describe(scenario{
	number: 8, title: "label put on the lease of a dead node", label: ordinary,
	hurts: rig.U1, rules: []string{ruleUnmarked, ruleLate}, mutants: []without{{"renew-time", ruleUnmarked}}, gaps: []int{3},
	options: quickTiming.rig(controlplane.NodeOptions{Count: 10}), idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.nodesKnown(ctx)
		began := time.Now()
		dead := r.Cluster.Nodes().Names()[0]
		r.kill(ctx, quickTiming, dead)
		edit := func(ctx context.Context, i int) (*coordinationv1.Lease, error) {
			return r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, dead, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"e2e.fresh-kcm.io/edited":"%d"}}}`, i), metav1.PatchOptions{})
		}
		edited, err := edit(ctx, 0)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the KCM to be told of the edit", func() (bool, error) {
			return r.Told(truth.Leases, edited.ResourceVersion)
		})
		r.figure("V lease edited at", "%v after the last renewal", rounded(time.Since(edited.Spec.RenewTime.Time)))
		stop := every(ctx, editEvery, func(ctx context.Context, i int) error {
			_, err := edit(ctx, i+1)
			return err
		})
		r.marked(ctx, "edited", quickTiming, time.Time{}, dead)
		stop()
		r.budgeted("one dead", began, time.Now())
		r.converges(ctx, "the living Ready", stepLimit, r.allReady(r.living()...))
	},
})
