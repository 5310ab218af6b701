// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// heldOwners is how many DaemonSets wait at once, each with one node of its own.
const heldOwners = 10

// The controller adopts a pod while the pod watch is held, and then the pod is deleted. The watch ends with
// 410, and the relist shows one pod less that, as far as the cache knows, belonged to nobody: the DaemonSet
// gets no event. (Its template is edited meanwhile, so that a reconcile shows by its first request.) U1 waits out
// its backoff. U0, which does not wait, never learns that it has a pod to create.
var _ = describe(scenario{
	number: 2, title: "pod adopted and deleted while the pod watch is held; relist", label: ordinary,
	timed: true, hurts: rig.U1, rules: []string{ruleWake}, mutants: []without{{"wake", ruleWake}}, gaps: []int{8},
	options: rig.Options{
		KCMArgs: quickClient,
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: heldOwners}},
	},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		makeOrphans(ctx, r)
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		owners := adoptAndDelete(ctx, r)
		stayHeld(ctx, hold)

		edited := time.Now()
		editAll(ctx, r, owners)
		gone := r.inject(faultproxy.Target{Resource: truth.Pods, Running: true}, faultproxy.Gone{})
		caughtUp := r.caughtUp(ctx, truth.Pods, r.lastRV(truth.Pods, isDeleted), stepLimit)
		r.wakes(ctx, "wake", edited, caughtUp, owners)
		r.proves(hold, 2*heldOwners, heldFor)
		gone.Clear()
		hold.Clear()
		r.endsWithOnePod(ctx, owners, oracle.Digest{PodsCreated: 1, PodsDeleted: 1, RevisionsCreated: 2})
	},
})

// The controller creates a pod while the pod watch is held, and the pod is deleted. Nothing of it is ever
// seen by the cache. On stock upstream the expectation of the creation stands for five minutes, whatever the
// cache has caught up with, and its running out wakes nobody: the node stays without a pod.
var _ = describe(createdAndDeleted("relist", ordinary, func(ctx context.Context, r *run) {
	r.inject(faultproxy.Target{Resource: truth.Pods, Running: true}, faultproxy.Gone{}).Clear()
}))

// The same, caught up by a bookmark: the events of these pods are taken out of the stream, so that nothing
// but the bookmark, which comes about once a minute, tells that the watch has passed them.
var _ = describe(createdAndDeleted("bookmark", long, nil))

//conformance:kep-5647 Informer and Cache Update: listeners are told of bookmarks, so that what came and went unseen holds nobody
func createdAndDeleted(by, label string, relist func(context.Context, *run)) scenario {
	return scenario{
		number: 2, title: "pod created and deleted while the pod watch is held; " + by, label: label,
		timed: true, hurts: rig.U1, rules: []string{ruleWake, ruleEnd}, mutants: ifOrdinary(label, without{"wake", ruleWake}),
		options: rig.Options{
			KCMArgs: quickClient,
			Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: heldOwners}},
		},
		timeout: 6 * time.Minute,
		run: func(ctx context.Context, r *run) {
			var effect faultproxy.Effect = faultproxy.Hold{}
			if relist == nil {
				effect = faultproxy.DropEvents{}
			}
			fault := r.inject(faultproxy.Target{Resource: truth.Pods}, effect)
			owners := createAndDelete(ctx, r)
			stayHeld(ctx, fault)
			edited := time.Now()
			editAll(ctx, r, owners)
			if relist != nil {
				relist(ctx, r)
			}
			caughtUp := r.caughtUp(ctx, truth.Pods, r.lastRV(truth.Pods, isDeleted), 2*time.Minute)
			r.wakes(ctx, "wake", edited, caughtUp, owners)
			r.proves(fault, 2*heldOwners, heldFor)
			fault.Clear()
			r.endsWithOnePod(ctx, owners, oracle.Digest{PodsCreated: 2, PodsDeleted: 1, RevisionsCreated: 2})
		},
	}
}

func isDeleted(e truth.Event) bool { return e.Type == watch.Deleted }

// stayHeld waits until a fault has lasted as long as it should.
func stayHeld(ctx context.Context, fault *faultproxy.Fault) {
	ginkgo.GinkgoHelper()
	gomega.Expect(rig.Wait(ctx, 2*heldFor, "the fault to last", func() (bool, error) {
		return time.Since(fault.Stats().Since) >= heldFor, nil
	})).To(gomega.Succeed())
}

// makeOrphans puts a running pod without owner on each of the first nodes.
func makeOrphans(ctx context.Context, r *run) {
	ginkgo.GinkgoHelper()
	for i, node := range r.Cluster.Nodes().Names()[:heldOwners] {
		pod := workload.Orphan(fmt.Sprintf("orphan-%d", i), fmt.Sprintf("owner-%d", i), node)
		_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	r.eventually(ctx, "the orphans to run", func() (bool, error) {
		running := 0
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			if pod := e.Object.(*corev1.Pod); pod.Status.Phase == corev1.PodRunning && oracle.DaemonSetOf(pod) == "" {
				running++
			}
		}
		return running == heldOwners, nil
	})
	r.told(ctx, truth.Pods)
}

// adoptAndDelete makes a DaemonSet for each orphan, waits until the controller has adopted it and written a
// status, and deletes it.
func adoptAndDelete(ctx context.Context, r *run) map[types.UID]string {
	ginkgo.GinkgoHelper()
	owners := createOwners(ctx, r)
	r.eventually(ctx, "the orphans to be adopted", func() (bool, error) {
		adopted := 0
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			if _, ours := owners[oracle.DaemonSetOf(e.Object.(*corev1.Pod))]; ours {
				adopted++
			}
		}
		return adopted == heldOwners, nil
	})
	for i := range heldOwners {
		deleteNow(ctx, r, fmt.Sprintf("orphan-%d", i))
	}
	r.waitDeleted(ctx, heldOwners)
	return owners
}

// createAndDelete makes DaemonSets, waits until the controller has created their pods, and deletes those.
func createAndDelete(ctx context.Context, r *run) map[types.UID]string {
	ginkgo.GinkgoHelper()
	owners := createOwners(ctx, r)
	names := map[string]bool{}
	r.eventually(ctx, "a pod of each DaemonSet", func() (bool, error) {
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			if _, ours := owners[oracle.DaemonSetOf(e.Object.(*corev1.Pod))]; ours {
				names[e.Name] = true
			}
		}
		return len(names) == heldOwners, nil
	})
	for name := range names {
		deleteNow(ctx, r, name)
	}
	r.waitDeleted(ctx, heldOwners)
	return owners
}

func (r *run) waitDeleted(ctx context.Context, pods int) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the pods to be gone", func() (bool, error) {
		gone := 0
		for _, e := range r.Truth.Events(truth.Pods) {
			if isDeleted(e) {
				gone++
			}
		}
		return gone >= pods, nil
	})
}

// createOwners makes a DaemonSet for each of the first nodes. Existing pods are left alone by an update, so
// that the number of pods made does not depend on how fast a rollout is.
func createOwners(ctx context.Context, r *run) map[types.UID]string {
	ginkgo.GinkgoHelper()
	owners := map[types.UID]string{}
	for i, node := range r.Cluster.Nodes().Names()[:heldOwners] {
		name := fmt.Sprintf("owner-%d", i)
		owners[create(ctx, r, workload.DaemonSet(name, workload.OnDelete, workload.OnNode(node)))] = name
	}
	return owners
}

// editAll changes every owner's template, for which the controller has to make a revision.
func editAll(ctx context.Context, r *run, owners map[types.UID]string) {
	ginkgo.GinkgoHelper()
	for _, name := range owners {
		setImage(ctx, r, name, workload.Image+":edited")
	}
}

// endsWithOnePod is L for every owner.
func (r *run) endsWithOnePod(ctx context.Context, owners map[types.UID]string, want oracle.Digest) {
	took := r.converges(ctx, "every owner has its pod", wakeLimit, func() error {
		for uid := range owners {
			if err := oracle.DaemonSetDone(r.Truth, uid, 1); err != nil {
				return err
			}
		}
		return nil
	})
	r.figure("L after", "%v", rounded(took))
	for uid, name := range owners {
		r.digest(name, uid, want)
	}
}
