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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	taintedPods       = 30
	taintedToleration = 10 * time.Second
	// taintedWindow is how long the hold goes on when the toleration has run out: twice what the client's
	// rate needs to evict them all.
	taintedWindow = 8 * time.Second
	laterPods     = 5
)

// A node is tainted, and the taint is taken off while node events are held. When the toleration of the pods runs
// out every stock arm deletes them from a healthy node (gap 1). Afterwards the node is tainted again and other
// pods have to go: to do nothing would be no cure.
var _ = describe(scenario{
	number: 4, title: "node events held, NoExecute taint taken off before the toleration runs out", label: ordinary,
	incidents: []string{"119862", "139992"},
	hurts:     rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"taint-guard", oracle.RuleUnjustified}}, gaps: []int{1},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}}, idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.TaintEvictions)
		node, due := r.taintVictims(ctx)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{})
		r.untaintBefore(ctx, node, due)
		r.passes(ctx, "the toleration to run out", due, taintedWindow)
		r.figure("pods deleted while held", "%d of %d", r.evicted("victim"), taintedPods)
		r.proves(hold, 1, taintedToleration)
		hold.Clear()
		r.told(ctx, truth.Nodes)

		r.evictsLater(ctx, node)
	},
})

// taintVictims runs pods on a node and taints it. They are due to be evicted at the end of their toleration.
func (r *run) taintVictims(ctx context.Context) (node string, due time.Time) {
	ginkgo.GinkgoHelper()
	node = r.Cluster.Nodes().Names()[0]
	r.runPods(ctx, node, "victim", taintedPods, taintedToleration)
	r.taint(ctx, node, workload.Taint)
	due = time.Now().Add(taintedToleration)
	r.told(ctx, truth.Nodes)
	return node, due
}

// untaintBefore takes the taint off, which has to be done before evictions are due.
func (r *run) untaintBefore(ctx context.Context, node string, due time.Time) {
	ginkgo.GinkgoHelper()
	r.taint(ctx, node)
	late := time.Until(due)
	r.figure("V taint gone before due", "%v", rounded(late))
	if late <= 0 {
		r.unproven = append(r.unproven, "the taint was gone too late")
	}
}

// evictsLater expects pods to be evicted from the node when it is tainted again, once the fault is over.
func (r *run) evictsLater(ctx context.Context, node string) {
	ginkgo.GinkgoHelper()
	r.runPods(ctx, node, "later", laterPods, time.Second)
	r.taint(ctx, node, workload.Taint)
	tainted := time.Now()
	r.converges(ctx, "evictions go on", stepLimit, func() error {
		if n := r.evicted("later"); n < laterPods {
			return fmt.Errorf("%d of %d pods evicted from a tainted node", n, laterPods)
		}
		return nil
	})
	r.figure("later ones evicted after", "%v", rounded(r.lastDeleted("later").Sub(tainted)))
}

// taint gives a node these taints and no others, and waits until the truth has it.
func (r *run) taint(ctx context.Context, node string, taints ...corev1.Taint) {
	ginkgo.GinkgoHelper()
	_, err := workload.SetTaints(ctx, r.Client, node, taints...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the truth to have the taint", func() (bool, error) {
		e, ok := r.Truth.Find(truth.Nodes, "", node, truth.Latest)
		return ok && len(e.Object.(*corev1.Node).Spec.Taints) == len(taints), nil
	})
}

// runPods runs pods on a node that tolerate the taint for a time, and waits until the KCM knows them.
func (r *run) runPods(ctx context.Context, node, prefix string, count int, toleration time.Duration) {
	ginkgo.GinkgoHelper()
	for i := range count {
		pod := workload.Tolerating(fmt.Sprintf("%s-%02d", prefix, i), node, toleration)
		pod.Labels["group"] = prefix
		_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	r.runs(ctx, prefix, count)
}

// runs waits until all pods of a group run and the KCM knows it.
func (r *run) runs(ctx context.Context, group string, count int) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the pods to run", func() (bool, error) {
		running := 0
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			if pod := e.Object.(*corev1.Pod); pod.Labels["group"] == group && pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == count, nil
	})
	r.told(ctx, truth.Pods)
}

// evicted counts the pods of a group that are gone.
func (r *run) evicted(group string) int {
	n := 0
	for _, e := range r.Truth.Events(truth.Pods) {
		if e.Type == watch.Deleted && e.Object.(*corev1.Pod).Labels["group"] == group {
			n++
		}
	}
	return n
}

func (r *run) lastDeleted(group string) time.Time {
	var last time.Time
	for _, e := range r.Truth.Events(truth.Pods) {
		if e.Type == watch.Deleted && e.Object.(*corev1.Pod).Labels["group"] == group {
			last = e.Time
		}
	}
	return last
}

const joinNodes = 10

// A node joins while node events are held, and with it comes a pod that a DaemonSet adopts and that cannot be
// scheduled. For the controller its node does not exist. Every stock arm deletes it (gap 9).
var _ = describe(scenario{
	number: 4, title: "node events held, DaemonSet: node joined", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"proofs", oracle.RuleUnjustified}}, gaps: []int{9},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: joinNodes}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "joined"
		// With OnDelete, so that the pod may be of no revision.
		set := create(ctx, r, workload.DaemonSet(name, workload.OnDelete))
		r.converges(ctx, "without fault", patience, r.daemonSetDone(set, joinNodes))
		r.told(ctx, truth.Nodes)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{})
		joined, err := r.Cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: 1})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		waiting := workload.Unschedulable("waiting", name, joined[0])
		_, err = r.Client.CoreV1().Pods(waiting.Namespace).Create(ctx, waiting, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the DaemonSet to adopt the pod", func() (bool, error) { return r.adopted(waiting.Name, name), nil })
		stayHeld(ctx, hold)
		r.proves(hold, 1, heldFor)
		hold.Clear()
		r.told(ctx, truth.Nodes)
		r.converges(ctx, "the pod of the new node", polling, func() error {
			if _, there := r.Truth.Find(truth.Pods, metav1.NamespaceDefault, waiting.Name, truth.Latest); !there {
				return fmt.Errorf("pod %s of node %s is gone", waiting.Name, joined[0])
			}
			return nil
		})
		r.digest(name, set, oracle.Digest{PodsCreated: joinNodes, RevisionsCreated: 1})
	},
})

// adopted reports whether a pod ever belonged to a DaemonSet.
func (r *run) adopted(pod, set string) bool {
	for _, e := range r.Truth.Events(truth.Pods) {
		if owner := metav1.GetControllerOf(e.Object.(*corev1.Pod)); e.Name == pod && owner != nil && owner.Name == set {
			return true
		}
	}
	return false
}
