// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const rolledNodes = 30

// Revisions are not seen during a rollout from A to B, and C is asked for meanwhile. Stock upstream records
// no revision that it writes: it asks for B to be created at every reconcile, is refused each time, and gives
// C the number that B has. That stays after the cache is back, since the event of a revision wakes nobody: which
// one a rollback returns to is left to chance until something else has the DaemonSet reconciled. It does not bump collisionCount: a live read keeps it from that.
var _ = describe(scenario{
	number: 5, title: "ControllerRevision events held during a rollout", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleRevisionNumber, oracle.RuleRevisionAgain}, mutants: []without{{"withheld", oracle.RuleRevisionAgain}}, gaps: []int{9},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: rolledNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "rolled"
		ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(3)))
		r.eventually(ctx, "the DaemonSet to be complete", done(r.daemonSetDone(ds, rolledNodes)))
		r.told(ctx, truth.ControllerRevisions)

		hold := r.inject(faultproxy.Target{Resource: truth.ControllerRevisions}, faultproxy.Hold{})
		setImage(ctx, r, name, workload.Image+":b")
		r.eventually(ctx, "a revision for B", func() (bool, error) { return len(r.revisions(ds)) == 2, nil })
		setImage(ctx, r, name, workload.Image+":c")
		// An arm that waits makes no revision for C before it is healed; one that does not, does at once.
		stayHeld(ctx, hold)
		r.figure("revisions while held", "%d", len(r.revisions(ds)))
		r.figure("pods made while held", "%d", oracle.DigestOf(r.Truth, ds).PodsCreated-rolledNodes)
		r.proves(hold, 1, heldFor)
		hold.Clear()

		r.figure("L after", "%v", rounded(r.converges(ctx, name, 2*stepLimit, r.daemonSetDone(ds, rolledNodes))))
		r.rolledOut(ds)
	},
})

func (r *run) revisions(set types.UID) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, e := range r.Truth.Events(truth.ControllerRevisions) {
		revision := e.Object.(*appsv1.ControllerRevision)
		if e.Type == watch.Added && oracle.DaemonSetOf(revision) == set {
			out = append(out, revision)
		}
	}
	return out
}

// rolledOut compares with a rollout without faults as far as that is determined: how many nodes get a pod of
// B on the way depends on when C is asked for.
func (r *run) rolledOut(set types.UID) {
	got := oracle.DigestOf(r.Truth, set)
	r.figure("pods made in all", "%d", got.PodsCreated)
	if got.PodsCreated < 2*rolledNodes || got.PodsCreated > 3*rolledNodes || got.PodsDeleted != got.PodsCreated-rolledNodes ||
		got.RevisionsCreated != 3 || got.RevisionsDeleted != 0 {
		r.violate(oracle.Violation{
			Oracle: "L", Rule: ruleDigest, Object: "rolled", Time: time.Now(),
			Detail: fmt.Sprintf("%+v; want 3 revisions and %d to %d pods", got, 2*rolledNodes, 3*rolledNodes),
		})
	}
	numbers := map[int64]int{}
	for _, e := range r.Truth.At(truth.ControllerRevisions, truth.Latest) {
		if revision := e.Object.(*appsv1.ControllerRevision); oracle.DaemonSetOf(revision) == set {
			numbers[revision.Revision]++
		}
	}
	if want := map[int64]int{1: 1, 2: 1, 3: 1}; !maps.Equal(numbers, want) {
		r.violate(oracle.Violation{
			Oracle: "L", Rule: "revision numbers in the end", Object: "rolled", Time: time.Now(), Detail: fmt.Sprintf("how many have which number: %v", numbers),
		})
	}
}
