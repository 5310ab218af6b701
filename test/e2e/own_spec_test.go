// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	ownNodes  = 15
	ownDelay  = 10 * time.Second
	podsDelay = 15 * time.Second
	// proofAge is how old the proof may be that a deletion is based on.
	proofAge = consistencystore.ProofAge
	// podsGone is also maxUnavailable, so that stock, which knows of none, hardly ever happens to choose just these.
	podsGone = 3

	rulePodLost   = "a pod that is called for was deleted"
	ruleClaimLost = "the claim of a pod that is called for was deleted"
)

// A DaemonSet's own events come late, and what they tell has been taken back by then: when the controller learns that it
// is to run nowhere, it is to run everywhere again. Every stock arm deletes all pods.
var _ = describe(scenario{
	number: 30, title: "a DaemonSet's own events delayed by 10 s: node selector changed and changed back", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"owner-daemonset", oracle.RuleUnjustified}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: ownNodes}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "flipped"
		set := create(ctx, r, workload.DaemonSet(name))
		r.converges(ctx, "without fault", patience, r.daemonSetDone(set, ownNodes))
		fault := r.inject(faultproxy.Target{Resource: truth.DaemonSets}, faultproxy.Delay{By: ownDelay})
		patchSpec(ctx, r, name, `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}`)
		r.passes(ctx, "the controller to act between the two events", time.Now(), time.Second)
		patchSpec(ctx, r, name, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
		if since := time.Since(fault.Stats().Since); since > ownDelay/2 {
			r.unproven = append(r.unproven, fmt.Sprintf("the selector was back after %v only", since))
		}
		r.passes(ctx, "the events to arrive", fault.Stats().Since, ownDelay+2*time.Second)
		r.proves(fault, 2, ownDelay)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, stepLimit, r.daemonSetDone(set, ownNodes))))
		r.figure("pods deleted", "%d", oracle.DigestOf(r.Truth, set).PodsDeleted)
	},
})

// Pod events come late, somebody deletes some pods, as many as may be down, and then the image changes. Every stock arm
// takes as many others down.
var _ = describe(scenario{
	number: 30, title: "pod events delayed by 15 s: pods deleted by somebody before a rolling update", label: ordinary,
	hurts: rig.U1, rules: []string{ruleMaxUnavailable}, mutants: []without{{"pods-daemonset", ruleMaxUnavailable}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: ownNodes}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "rollout"
		ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(podsGone)))
		r.converges(ctx, "before the rollout", patience, r.daemonSetDone(ds, ownNodes))
		r.told(ctx, truth.Pods)
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: podsDelay})
		r.deletePodsByHand(ctx, podsGone)
		// The monitor may just have proven the cache: a deletion may rest on that for two seconds.
		r.passes(ctx, "proofs from before to be too old", time.Now(), proofAge+time.Second)
		setImage(ctx, r, name, workload.Image+":next")
		r.passes(ctx, "the controller to act", fault.Stats().Since, podsDelay-3*time.Second)
		r.proves(fault, podsGone, podsDelay-3*time.Second)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, rolloutLimit, r.daemonSetDone(ds, ownNodes))))
		r.downAtMost(ds, name, podsGone)
	},
})

// deletePodsByHand deletes so many pods of the default namespace as somebody would.
func (r *run) deletePodsByHand(ctx context.Context, n int) {
	ginkgo.GinkgoHelper()
	pods, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range n {
		gomega.Expect(r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pods.Items[i].Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}

// A StatefulSet whose claims go with its pods is scaled down, and up again while the first pod still terminates. The
// StatefulSets' events are held from before the second change on. Every stock arm goes on scaling down, and a volume
// that is called for is lost. The pod that terminates goes when it is called for again, by a deletion from before.
var _ = describe(scenario{
	number: 30, title: "statefulsets held: scaled down and up again while a pod terminates, whenScaled: Delete", label: ordinary,
	hurts: rig.U1, rules: []string{rulePodLost, ruleClaimLost}, allows: []string{oracle.RuleUnjustified}, idle: true,
	mutants: []without{{"owner-statefulset", rulePodLost}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		sets := r.Client.AppsV1().StatefulSets(metav1.NamespaceDefault)
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		claims := r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
		scale := func(replicas int) {
			_, err := sets.Patch(ctx, "web", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		finalizers := func(json string) {
			_, err := pods.Patch(ctx, "web-2", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+json+`}}`), metav1.PatchOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		ready := func() error {
			set, err := sets.Get(ctx, "web", metav1.GetOptions{})
			if err == nil && (set.Status.ObservedGeneration != set.Generation || set.Status.ReadyReplicas != 3) {
				err = fmt.Errorf("%+v", set.Status)
			}
			return err
		}
		_, err := sets.Create(ctx, workload.WithClaims(workload.StatefulSet("web", 3), r.Cluster.Nodes().Names()[0]), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.converges(ctx, "without fault", patience, ready)
		pod, err := pods.Get(ctx, "web-1", metav1.GetOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		claim, err := claims.Get(ctx, "data-web-1", metav1.GetOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())

		finalizers(`["e2e.fresh-kcm.io/hold"]`)
		scale(1)
		r.eventually(ctx, "the claim to go with its pod", func() (bool, error) {
			c, err := claims.Get(ctx, "data-web-1", metav1.GetOptions{})
			return err == nil && len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == pod.UID, err
		})
		r.eventually(ctx, "web-2 to terminate", func() (bool, error) {
			p, err := pods.Get(ctx, "web-2", metav1.GetOptions{})
			return err == nil && p.DeletionTimestamp != nil, err
		})
		statefulSets := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
		last, since := "", time.Now()
		r.eventually(ctx, "the controller to have written its status, and seen that", func() (bool, error) {
			set, err := sets.Get(ctx, "web", metav1.GetOptions{})
			if err != nil || set.Status.ObservedGeneration != set.Generation {
				return false, err
			}
			if set.ResourceVersion != last {
				last, since = set.ResourceVersion, time.Now()
			}
			if time.Since(since) < time.Second {
				return false, nil
			}
			return r.Told(statefulSets, last)
		})
		fault := r.inject(faultproxy.Target{Resource: statefulSets}, faultproxy.Hold{})
		scale(3)
		r.passes(ctx, "what was proven before to be too old", fault.Stats().Since, proofAge+time.Second)
		finalizers(`null`)
		r.passes(ctx, "the controller to act", fault.Stats().Since, 8*time.Second)
		r.proves(fault, 1, 8*time.Second)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, "web", stepLimit, ready)))
		if p, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil || p.UID != pod.UID {
			r.violate(oracle.Violation{Oracle: "S2", Rule: rulePodLost, Object: pod.Name, Time: time.Now(), Detail: fmt.Sprint(err)})
		}
		if c, err := claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil || c.UID != claim.UID {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleClaimLost, Object: claim.Name, Time: time.Now(), Detail: fmt.Sprint(err)})
		}
	},
})
