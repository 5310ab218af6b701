// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	editedNodes  = 30
	editedRounds = 5
	setDelay     = 3 * time.Second
)

// Events of DaemonSets come late while specs are edited and pods fail, so that status after status has to be
// written. U0 writes each on an object older than its own last write and is refused; it then overwrites what
// is there. U1 waits for its own status and is not hurt.
//
//conformance:kep-5647 Staleness Mitigation in Controllers: writes of status are tracked too
var _ = describe(scenario{
	number: 3, title: "DaemonSet events delayed across spec and status edits", label: ordinary,
	hurts: rig.U0, rules: []string{oracle.RuleStatusConflict}, mutants: []without{{"own-writes", oracle.RuleStatusConflict}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: editedNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "edited"
		ds := create(ctx, r, workload.DaemonSet(name, workload.OnDelete))
		r.eventually(ctx, "the DaemonSet to be complete", done(r.daemonSetDone(ds, editedNodes)))
		r.told(ctx, truth.DaemonSets)

		fault := r.inject(faultproxy.Target{Resource: truth.DaemonSets}, faultproxy.Delay{By: setDelay})
		nodes := r.Cluster.Nodes().Names()
		const each = editedNodes / editedRounds
		for round := range editedRounds {
			failOn(ctx, r, ds, nodes[round*each:(round+1)*each])
			patchSpec(ctx, r, name, fmt.Sprintf(`{"spec":{"revisionHistoryLimit":%d}}`, 5+round))
		}
		r.eventually(ctx, "the faulted time to pass", func() (bool, error) {
			return time.Since(fault.Stats().Since) >= 4*setDelay, nil
		})
		r.proves(fault, 2*editedRounds, 4*setDelay)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, stepLimit, r.daemonSetDone(ds, editedNodes))))
		r.digest(name, ds, oracle.Digest{PodsCreated: 2 * editedNodes, PodsDeleted: editedNodes, RevisionsCreated: 1})
	},
})

// failOn deletes a DaemonSet's pods on some nodes and waits until each node has another that is Ready.
func failOn(ctx context.Context, r *run, set types.UID, nodes []string) {
	ginkgo.GinkgoHelper()
	old := deleteOn(ctx, r, set, nodes)
	r.eventually(ctx, "the pods to be replaced", func() (bool, error) {
		ready := map[string]bool{}
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			pod := e.Object.(*corev1.Pod)
			if oracle.DaemonSetOf(pod) == set && !old[e.UID] && pod.Status.Phase == corev1.PodRunning {
				ready[oracle.NodeOf(pod)] = true
			}
		}
		for _, node := range nodes {
			if !ready[node] {
				return false, nil
			}
		}
		return true, nil
	})
}

// deleteOn deletes a DaemonSet's pods on some nodes and returns which they were.
func deleteOn(ctx context.Context, r *run, set types.UID, nodes []string) map[types.UID]bool {
	ginkgo.GinkgoHelper()
	deleted := map[types.UID]bool{}
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if pod := e.Object.(*corev1.Pod); oracle.DaemonSetOf(pod) == set && slices.Contains(nodes, oracle.NodeOf(pod)) {
			deleted[e.UID] = true
			deleteNow(ctx, r, e.Name)
		}
	}
	return deleted
}

// done turns a check that returns an error into a condition to wait for.
func done(check func() error) func() (bool, error) {
	return func() (bool, error) { return check() == nil, nil }
}

// setImage changes a DaemonSet's template.
func setImage(ctx context.Context, r *run, name, image string) {
	ginkgo.GinkgoHelper()
	patchSpec(ctx, r, name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image))
}

// patchSpec returns when the change is recorded: who waits for the end state does not take the one before it for that.
func patchSpec(ctx context.Context, r *run, name, patch string) {
	ginkgo.GinkgoHelper()
	set, err := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the change to be recorded", func() (bool, error) {
		e, found := r.Truth.Find(truth.DaemonSets, set.Namespace, set.Name, truth.Latest)
		return found && e.Object.(*appsv1.DaemonSet).Generation >= set.Generation, nil
	})
}
