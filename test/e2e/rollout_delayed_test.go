// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// lateRolloutNodes are so many that the pods of the DaemonSet are not read live.
	lateRolloutNodes = 110
	// quietPods are so many that, with these, the cache of pods is proven by a watch, and not by a list.
	quietPods = 400
	// lateEvents is longer than a watch of a proof is given at first.
	lateEvents = 10 * time.Second
	// beginLimit is for a rollout to begin while events are late. Stock begins at once. A proof that comes late at first is
	// made otherwise after some 7 s.
	beginLimit = 40 * time.Second

	ruleHeldUp = "held up while events are late"
)

// All events of pods are late for as long as a rollout lasts, also those of the watch by which a large cache is proven. Stock asks
// for no proof and rolls on. Fresh KCM must find another proof: being stuck is as bad as acting on stale data.
var _ = describe(scenario{
	number: 1, title: "pod events delayed by 10 s in a rolling update, beside 400 other pods", label: ordinary,
	mutants: []without{{"late-events", ruleHeldUp}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: lateRolloutNodes}}},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "late"
		for i := range quietPods {
			pod := workload.Orphan(fmt.Sprint("quiet-", i), "quiet", "")
			pod.Spec.SchedulerName = noScheduler
			_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(lateRolloutNodes)))
		r.converges(ctx, "before the rollout", patience, r.daemonSetDone(ds, lateRolloutNodes))
		r.told(ctx, truth.Pods)
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: lateEvents})
		began := time.Now()
		setImage(ctx, r, name, workload.Image+":next")
		seen := lateRolloutNodes
		if err := rig.Wait(ctx, beginLimit, "the first pod to be deleted", func() (bool, error) { return r.mostDown(ds) > 0, nil }); err != nil {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleHeldUp, Object: name, Time: time.Now(), Detail: err.Error()})
			// Nothing has changed meanwhile that could be late.
			_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, "quiet-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"late":"true"}}}`), metav1.PatchOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			seen = 1
			gomega.Expect(rig.Wait(ctx, stepLimit, "an event to be late", func() (bool, error) { return fault.Stats().Touched() >= seen, nil })).To(gomega.Succeed())
			fault.Clear()
		}
		r.figure("rollout began after", "%.1fs", time.Since(began).Seconds())
		r.figure("L after", "%.1fs", r.converges(ctx, name, 6*lateEvents+stepLimit, r.daemonSetDone(ds, lateRolloutNodes)).Seconds())
		r.proves(fault, seen, lateEvents)
		fault.Clear()
		r.digest(name, ds, oracle.Digest{PodsCreated: 2 * lateRolloutNodes, PodsDeleted: lateRolloutNodes, RevisionsCreated: 2})
	},
})
