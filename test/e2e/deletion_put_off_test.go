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

// askedToWait is for how long the server asks to wait before a deletion is sent again.
const askedToWait = 8 * time.Second

// The server is too busy to delete pods for a moment, and asks to send deletions again later. By then all pods are called for again. Every stock arm deletes half of them, of each kind:
// its client sends again what was decided before.
var _ = describe(scenario{
	number: 64, title: "deletions answered with 429: a ReplicaSet, a ReplicationController and a Job scaled down and up again", label: ordinary,
	hurts: rig.U1, rules: lostRules(), gaps: []int{28}, idle: true,
	mutants: []without{{"deletion-resent", scaledJob.lost()}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.createScaled(ctx)
		busy := r.putsOffDeletions()
		r.scaleAll(ctx, scaledTo/2)
		r.eventually(ctx, "all deletions to be put off", func() (bool, error) { return busy.Stats().Touched() >= len(scaledKinds)*scaledTo/2, nil })
		since := busy.Stats().Since
		r.scaleAll(ctx, scaledTo)
		r.acceptsInTime(busy, since)
		r.passes(ctx, "the deletions to be sent again", since, askedToWait+2*time.Second)
		r.scaledDone(ctx, scaledTo)
		for _, k := range r.deletedOfKinds(ctx) {
			r.unproven = append(r.unproven, k.name+": stock did nothing wrong")
		}
	},
})

// The server is too busy to delete pods for a moment, and by the time for which it asks to wait the taint for which they are evicted is gone. Every stock arm deletes those whose deletion
// it has sent once.
var _ = describe(scenario{
	number: 64, title: "deletions answered with 429: evictions for a taint that goes", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, gaps: []int{28}, idle: true,
	mutants: []without{{"eviction-resent", oracle.RuleUnjustified}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.TaintEvictions)
		node, due := r.taintVictims(ctx)
		busy := r.putsOffDeletions()
		r.passes(ctx, "the toleration to run out", due, 0)
		r.eventually(ctx, "a deletion to be put off", func() (bool, error) { return busy.Stats().Touched() > 0, nil })
		since := time.Now()
		r.taint(ctx, node)
		r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
		r.acceptsInTime(busy, since)
		r.passes(ctx, "the deletions to be sent again", since, askedToWait+taintedWindow)
		r.figure("pods deleted", "%d of %d", r.evicted("victim"), taintedPods)

		r.evictsLater(ctx, node)
	},
})

// putsOffDeletions has deletions of pods be answered with 429, and askedToWait, and so patches: a Job takes off the finalizer of a pod before it deletes it.
func (r *run) putsOffDeletions() *faultproxy.Fault {
	return r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.TooManyRequests{RetryAfter: askedToWait, Verbs: []string{"delete", "patch"}})
}

// acceptsInTime has deletions be accepted again, which has to be before any is sent again. since is when the first was sent, or before that.
func (r *run) acceptsInTime(busy *faultproxy.Fault, since time.Time) {
	r.proves(busy, 1, 0)
	busy.Clear()
	if lasted := time.Since(since); lasted > askedToWait {
		r.unproven = append(r.unproven, fmt.Sprintf("deletions were put off for %v, and some may have been sent again meanwhile", lasted))
	}
}
