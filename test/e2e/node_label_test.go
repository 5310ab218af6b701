// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	flapNodes = 20
	// flapped of them lose their label for a moment.
	flapped   = 8
	nodeDelay = 10 * time.Second
)

// Node events come late, and what they tell has been taken back by then: when the controller learns that nodes
// lost the label that a DaemonSet selects, they have it again. Every stock arm deletes the pods (gap 9).
//
//conformance:kep-5647 Story 3: no disruptive action on a stale read: live reads or proofs come first, not of leases alone
var _ = describe(scenario{
	number: 4, title: "node events delayed by 10 s, DaemonSet: label taken away and given back", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"proofs", oracle.RuleUnjustified}}, gaps: []int{9},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: flapNodes + 1}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		names := r.Cluster.Nodes().Names()
		nodes, last := names[:flapNodes], names[flapNodes]
		addLabel(ctx, r, nodes...)
		set := create(ctx, r, workload.DaemonSet("labelled", onLabelled))
		r.converges(ctx, "without fault", patience, r.daemonSetDone(set, flapNodes))

		fault := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Delay{By: nodeDelay})
		began := time.Now()
		patchNodes(ctx, r, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, nodeLabel), nodes[:flapped]...)
		addLabel(ctx, r, nodes[:flapped]...)
		restored := time.Since(began)
		var rv string
		r.eventually(ctx, "the truth to have the labels back", func() (bool, error) {
			e, ok := r.Truth.Find(truth.Nodes, "", nodes[flapped-1], truth.Latest)
			rv = fmt.Sprint(e.RV)
			return ok && e.Object.(*corev1.Node).Labels[nodeLabel] == "true", nil
		})
		if restored > nodeDelay/2 {
			r.unproven = append(r.unproven, fmt.Sprintf("the labels were back after %v only", restored))
		}
		r.eventually(ctx, "the events to arrive", func() (bool, error) { return r.Told(truth.Nodes, rv) })
		r.figure("labels back after, told after", "%.1fs, %.1fs", restored.Seconds(), time.Since(began).Seconds())
		r.proves(fault, 2*flapped, nodeDelay)
		fault.Clear()
		// One more node: the status can count it only after all that the controller was told before.
		addLabel(ctx, r, last)
		r.figure("L after", "%.1fs", r.converges(ctx, "labelled", stepLimit, r.daemonSetDone(set, flapNodes+1)).Seconds())
		got := oracle.DigestOf(r.Truth, set)
		r.figure("pods deleted", "%d", got.PodsDeleted)
		r.digest("labelled", set, oracle.Digest{PodsCreated: flapNodes + 1, RevisionsCreated: 1})
	},
})
