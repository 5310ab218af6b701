// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

const (
	// secondZone nodes die when all those of the first zone have been marked.
	firstZone, secondZone = 300, 10
	// deadWindow is for counting live reads when every node is dead.
	deadWindow = time.Minute
)

// All nodes of a zone die at once, then those of another, smaller one. Once nodes are marked nothing about them
// needs to be read live. U1 reads the lease of each dead node in each pass for ever (gap 2), which takes most of
// its client's rate and makes it late for the second zone.
var _ = describe(scenario{
	number: 9, title: "every node dies, zone by zone", label: long,
	hurts: rig.U1, rules: []string{ruleBudget}, gaps: []int{2},
	options: shortTiming.rig(controlplane.NodeOptions{Count: firstZone}), idle: true,
	timeout: 10 * time.Minute,
	run: func(ctx context.Context, r *run) {
		first := r.Cluster.Nodes().Names()
		second, err := r.Cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: secondZone, Zones: []string{"zone-b"}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.nodesKnown(ctx)
		died := time.Now()
		r.kill(ctx, shortTiming, first...)
		marked := r.allMarked(ctx, first, 5*time.Minute)
		r.figure("first zone marked after", "%v", rounded(marked.Sub(died)))
		// What was decided before the last mark may still be under way.
		r.passes(ctx, "a pass", marked, passPeriod)
		r.kill(ctx, shortTiming, second...)
		r.marked(ctx, "second zone", shortTiming, time.Time{}, second...)
		counted := time.Now()
		r.passes(ctx, "the reads to be counted", counted, deadWindow)
		r.budgeted("while marking", died, marked)
		r.budgeted("first zone dead", marked.Add(passPeriod), counted)
		r.budgetedTo("every node dead", counted.Add(passPeriod), time.Now(), 12)
	},
})

// allMarked waits until these nodes are marked, and returns when the last one was.
func (r *run) allMarked(ctx context.Context, nodes []string, limit time.Duration) time.Time {
	var last time.Time
	gomega.Expect(rig.Wait(ctx, limit, fmt.Sprintf("%d nodes to be marked", len(nodes)), func() (bool, error) {
		at, n := r.marksOf(nodes)
		last = at
		return n == len(nodes), nil
	})).To(gomega.Succeed())
	return last
}
