// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// cutAfter is in the middle of a list of metadata of the pods of so many nodes, and past the answer to a fence.
	cutAfter = 4 << 10
	// cutBroken of the lists end as where a connection breaks, those after them look whole.
	cutBroken = 2
	cutFor    = 12 * time.Second
)

// byLists has informers fill their caches by lists, as they do where WatchList is not served.
var byLists = []string{"--feature-gates=WatchListClient=false"}

// The watch of pods ends with 410, and every list that is to follow ends in the middle of its page. Somebody deletes some pods
// meanwhile, as many as may be down, and the image changes. Every stock arm takes as many others down, on what its cache
// had before. The lists of proofs are cut, too, and prove nothing. Half a list in the cache would have pods created again.
var _ = describe(scenario{
	number: 55, title: "lists of pods cut in the middle during a relist: pods deleted by somebody before a rolling update", label: ordinary,
	hurts: rig.U1, rules: []string{ruleMaxUnavailable}, mutants: []without{{"pods-daemonset", ruleMaxUnavailable}},
	options: rig.Options{KCMArgs: byLists, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: ownNodes}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "rollout"
		ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(podsGone)))
		r.converges(ctx, "before the rollout", patience, r.daemonSetDone(ds, ownNodes))
		r.told(ctx, truth.Pods)
		lists := faultproxy.Target{Resource: truth.Pods}
		broken := r.inject(lists, faultproxy.CutAnswers{After: cutAfter, Count: cutBroken})
		whole := r.inject(lists, faultproxy.CutAnswers{After: cutAfter, Whole: true})
		gone := r.inject(informersOf(truth.Pods), faultproxy.Gone{})
		r.eventually(ctx, "lists to be cut in both ways", func() (bool, error) {
			return broken.Stats().Requests == cutBroken && whole.Stats().Requests > 0, nil
		})
		r.deletePodsByHand(ctx, podsGone)
		r.passes(ctx, "proofs from before to be too old", time.Now(), proofAge+time.Second)
		setImage(ctx, r, name, workload.Image+":next")
		r.passes(ctx, "the controller to act", gone.Stats().Since, cutFor)
		gone.Clear()
		r.proves(broken, cutBroken, cutFor)
		r.proves(whole, 1, cutFor)
		broken.Clear()
		whole.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, rolloutLimit, r.daemonSetDone(ds, ownNodes))))
		r.downAtMost(ds, name, podsGone)
		r.figure("pods created", "%d", oracle.DigestOf(r.Truth, ds).PodsCreated)
	},
})
