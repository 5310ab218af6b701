// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	disorderedNodes = 6
	// disorderedToleration is over before the monitor can have found the cache wrong and had it relist, which would heal it.
	disorderedToleration = 2 * time.Second
)

// All events of pods come twice, during a rollout too, which changes nothing. And the events that a node was tainted, and that
// the taint was taken off, come in the wrong order: the cache has the taint then, and a version that has gone back. When the
// toleration of the pods runs out every stock arm deletes them from a healthy node. Fresh KCM does not take the version that went
// back for a rewind, since no consistent read shows one. It puts off what needs the nodes, here the rollout, until a list has
// shown that the cache is wrong and the informer has relisted once, after some 15 s.
var _ = describe(scenario{
	number: 57, title: "pod events doubled; the event that a NoExecute taint was taken off comes before the one that it was put on", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"taint-guard", oracle.RuleUnjustified}},
	incidents: []string{"etcd-20655", "etcd-20221"},
	options:   rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: disorderedNodes + 1}}}, idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "doubled"
		r.judges = append(r.judges, oracle.TaintEvictions)
		names := r.Cluster.Nodes().Names()
		node, others := names[0], names[1:]
		doubled := r.inject(informersOf(truth.Pods), faultproxy.DoubleEvents{})
		addLabel(ctx, r, others...)
		ds := create(ctx, r, workload.DaemonSet(name, onLabelled, workload.MaxUnavailable(podsGone)))
		r.converges(ctx, "with doubled events", patience, r.daemonSetDone(ds, disorderedNodes))
		r.runPods(ctx, node, "victim", taintedPods, disorderedToleration)

		before := r.relists(truth.Nodes)
		swapped := r.inject(informersOf(truth.Nodes), faultproxy.ReorderEvents{
			Match: func(e faultproxy.Event) bool { return e.Type == watch.Modified && e.Name == node },
		})
		r.taint(ctx, node, workload.Taint)
		due := time.Now().Add(disorderedToleration)
		r.untaintBefore(ctx, node, due)
		r.eventually(ctx, "the events to change places", func() (bool, error) { return swapped.Stats().Swapped.Frames > 0, nil })
		r.proves(swapped, 1, 0)
		swapped.Clear()
		setImage(ctx, r, name, workload.Image+":next")
		r.figure("L after", "%v", rounded(r.converges(ctx, name, rolloutLimit, r.daemonSetDone(ds, disorderedNodes))))
		r.passes(ctx, "the toleration to run out", due, taintedWindow)
		r.figure("pods deleted", "%d of %d", r.evicted("victim"), taintedPods)
		r.figure("relists of nodes", "%d", r.relists(truth.Nodes)-before)
		r.digest(name, ds, oracle.Digest{PodsCreated: 2 * disorderedNodes, PodsDeleted: disorderedNodes, RevisionsCreated: 2})
		r.proves(doubled, 4*disorderedNodes, taintedWindow)
		doubled.Clear()

		r.evictsLater(ctx, node)
	},
})

// relists is how often the controllers' informer has asked for all objects of a resource.
func (r *run) relists(resource schema.GroupResource) (n int) {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		if e := &events[i]; isSharedInformer(e, resource) && fillsAnew(e) {
			n++
		}
	}
	return n
}
