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
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	rolloutNodes = 20
	// nudgeEvery is how often the DaemonSet is edited, so that it is reconciled when its expectations have run out.
	nudgeEvery = 5 * time.Second
	// rolloutLimit is enough for so many pods one after another.
	rolloutLimit = 2 * time.Minute

	ruleMaxUnavailable = "more nodes down than maxUnavailable"
)

// Pod events are held from the start of a rolling update with maxUnavailable 1 until the expectation of the first
// deletion has run out. Deletions are not recorded by stock upstream: it finds all pods in its cache, and takes
// the next one down (gap 7).
var _ = describe(scenario{
	number: 1, title: "pod events held in a rolling update for longer than expectations last", label: long,
	hurts: rig.U1, rules: []string{ruleMaxUnavailable}, mutants: []without{{"delete-records", ruleMaxUnavailable}}, gaps: []int{7, 18},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: rolloutNodes}}},
	timeout: 2 * expectationLife,
	run: func(ctx context.Context, r *run) {
		const name = "rollout"
		ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(1)))
		r.converges(ctx, "before the rollout", patience, r.daemonSetDone(ds, rolloutNodes))
		r.told(ctx, truth.Pods)
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		setImage(ctx, r, name, workload.Image+":next")
		r.eventually(ctx, "the first pod to be deleted", func() (bool, error) { return r.mostDown(ds) > 0, nil })

		lasts := expectationLife + 20*time.Second
		for nudges := 0; time.Since(fault.Stats().Since) < lasts; nudges++ {
			patchSpec(ctx, r, name, fmt.Sprintf(`{"spec":{"revisionHistoryLimit":%d}}`, 5+nudges%2))
			next := time.Now().Add(nudgeEvery)
			gomega.Expect(rig.Wait(ctx, 2*nudgeEvery, "the next edit", func() (bool, error) { return time.Now().After(next), nil })).To(gomega.Succeed())
		}
		gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
		r.saysWhy(ctx, name)
		r.proves(fault, 1, lasts)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, rolloutLimit, r.daemonSetDone(ds, rolloutNodes))))
		r.downAtMost(ds, name, 1)
		r.digest(name, ds, oracle.Digest{PodsCreated: 2 * rolloutNodes, PodsDeleted: rolloutNodes, RevisionsCreated: 2})
	},
})

// saysWhy looks for the event that tells why an object is not reconciled for so long.
func (r *run) saysWhy(ctx context.Context, name string) {
	events, err := r.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.name=%s,reason=%s", name, consistencystore.StaleCacheReason),
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.figure("events that say why it waits", "%d", len(events.Items))
	if len(events.Items) == 0 {
		r.violate(oracle.Violation{Oracle: "L", Rule: "nothing says why it waits", Object: name, Time: time.Now()})
	}
}

// downAtMost says whether more nodes than maxUnavailable were without an available pod of the DaemonSet at the same time.
func (r *run) downAtMost(ds types.UID, name string, maxUnavailable int) {
	most := r.mostDown(ds)
	r.figure("nodes down at once", "%d", most)
	if most > maxUnavailable {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleMaxUnavailable, Object: name, Time: time.Now(),
			Detail: fmt.Sprintf("%d nodes without an available pod at one time", most)})
	}
}

// mostDown is how many nodes that had an available pod of the DaemonSet were without one at the same time.
func (r *run) mostDown(ds types.UID) int {
	had, up := sets.New[string](), map[string]sets.Set[types.UID]{}
	most := 0
	for _, e := range r.Truth.Events(truth.Pods) {
		pod := e.Object.(*corev1.Pod)
		node := oracle.NodeOf(pod)
		if oracle.DaemonSetOf(pod) != ds || node == "" {
			continue
		}
		if up[node] == nil {
			up[node] = sets.New[types.UID]()
		}
		if !isDeleted(e) && pod.DeletionTimestamp == nil && podutil.IsPodReady(pod) {
			had.Insert(node)
			up[node].Insert(pod.UID)
		} else {
			up[node].Delete(pod.UID)
		}
		down := 0
		for node := range had {
			if up[node].Len() == 0 {
				down++
			}
		}
		most = max(most, down)
	}
	return most
}
