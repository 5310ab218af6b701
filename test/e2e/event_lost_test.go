// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// A node is tainted, the taint is taken off, and the one event that says so never comes; an event of another node does. The cache has
// the newest resource version then, and is wrong. When the toleration of the pods runs out every stock arm deletes them from a
// healthy node. Afterwards the node is tainted again and other pods have to go.
//
//conformance:kep-5647 Story 3: no disruptive action on a stale read: live reads or proofs come first, not of leases alone
var _ = describe(scenario{
	number: 27, title: "the event that a NoExecute taint was taken off is lost, later ones come", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"taint-guard-lost", oracle.RuleUnjustified}},
	incidents: []string{"etcd-20655", "etcd-20221"},
	options:   rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}}, idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.TaintEvictions)
		node, due := r.taintVictims(ctx)

		lost := r.inject(informersOf(truth.Nodes), faultproxy.DropEvents{
			Match: func(e faultproxy.Event) bool { return e.Type == watch.Modified && e.Name == node },
		})
		r.taint(ctx, node)
		r.eventually(ctx, "the event to be lost", func() (bool, error) { return lost.Stats().Dropped.Frames > 0, nil })
		r.proves(lost, 1, 0)
		lost.Clear()
		patchNodes(ctx, r, `{"metadata":{"labels":{"later":"event"}}}`, r.Cluster.Nodes().Names()[1])
		r.told(ctx, truth.Nodes)
		late := time.Until(due)
		r.figure("V a later event came before due", "%v", rounded(late))
		if late <= 0 {
			r.unproven = append(r.unproven, "the later event came too late")
		}
		r.passes(ctx, "the toleration to run out", due, taintedWindow)
		r.figure("pods deleted", "%d of %d", r.evicted("victim"), taintedPods)

		r.evictsLater(ctx, node)
	},
})
