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

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	scaled = "scaled"
	// scaledTo is how many pods each owner calls for, and half of it while it is scaled down.
	scaledTo = 10
)

// scaledKind is a kind of owner whose number of pods can be changed.
type scaledKind struct {
	name, account string
	resource      schema.GroupResource
	create        func(ctx context.Context, r *run) error
	scale         func(ctx context.Context, r *run, pods int) error
}

// lost is the rule that a kind breaks whose pods are deleted although they are called for.
func (k scaledKind) lost() string { return k.name + " deleted pods that are called for" }

func (k scaledKind) pods() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"kind": k.name}})}
}

var (
	scaledReplicaSet = scaledKind{"ReplicaSet", workload.ReplicaSetAccount, truth.ReplicaSets,
		func(ctx context.Context, r *run) error {
			o := workload.ReplicaSet(scaled, scaledTo)
			o.Spec.Selector.MatchLabels["kind"] = "ReplicaSet"
			o.Spec.Template.Labels = o.Spec.Selector.MatchLabels
			_, err := r.Client.AppsV1().ReplicaSets(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, r *run, pods int) error {
			_, err := r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Patch(ctx, scaled, types.MergePatchType, replicasPatch("replicas", pods), metav1.PatchOptions{})
			return err
		},
	}
	scaledController = scaledKind{"ReplicationController", workload.ReplicationControllerAccount, schema.GroupResource{Resource: "replicationcontrollers"},
		func(ctx context.Context, r *run) error {
			o := workload.ReplicationController(scaled, scaledTo)
			o.Spec.Selector["kind"] = "ReplicationController"
			o.Spec.Template.Labels = o.Spec.Selector
			_, err := r.Client.CoreV1().ReplicationControllers(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, r *run, pods int) error {
			_, err := r.Client.CoreV1().ReplicationControllers(metav1.NamespaceDefault).Patch(ctx, scaled, types.MergePatchType, replicasPatch("replicas", pods), metav1.PatchOptions{})
			return err
		},
	}
	scaledJob = scaledKind{"Job", workload.JobAccount, schema.GroupResource{Group: "batch", Resource: "jobs"},
		func(ctx context.Context, r *run) error {
			o := workload.Job(scaled, scaledTo)
			o.Spec.Template.Labels = map[string]string{"kind": "Job"} // Its pods run for ever.
			_, err := r.Client.BatchV1().Jobs(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, r *run, pods int) error {
			_, err := r.Client.BatchV1().Jobs(metav1.NamespaceDefault).Patch(ctx, scaled, types.MergePatchType, replicasPatch("parallelism", pods), metav1.PatchOptions{})
			return err
		},
	}
	scaledKinds = []scaledKind{scaledReplicaSet, scaledController, scaledJob}
)

func replicasPatch(field string, n int) []byte { return fmt.Appendf(nil, `{"spec":{%q:%d}}`, field, n) }

func lostRules() (rules []string) {
	for _, k := range scaledKinds {
		rules = append(rules, k.lost())
	}
	return rules
}

// The owners' own events come late, and what they tell has been taken back by then: when the controllers learn that half of
// the pods are not called for, all of them are again. Every stock arm deletes half of them, of each kind.
var _ = describe(scenario{
	number: 30, title: "own events of a ReplicaSet, a ReplicationController and a Job delayed by 10 s: scaled down and up again", label: ordinary,
	hurts: rig.U1, rules: lostRules(), idle: true,
	mutants: []without{{"owner-replicaset", scaledReplicaSet.lost()}, {"owner-job", scaledJob.lost()}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.createScaled(ctx)
		var faults []*faultproxy.Fault
		for _, k := range scaledKinds {
			faults = append(faults, r.inject(faultproxy.Target{Resource: k.resource}, faultproxy.Delay{By: ownDelay}))
		}
		since := faults[0].Stats().Since
		r.scaleAll(ctx, scaledTo/2)
		r.passes(ctx, "the controllers to act between the two events", time.Now(), time.Second)
		r.scaleAll(ctx, scaledTo)
		if late := time.Since(since); late > ownDelay/2 {
			r.unproven = append(r.unproven, fmt.Sprintf("the scale was back after %v only", late))
		}
		r.passes(ctx, "the events to arrive", since, ownDelay+2*time.Second)
		for _, fault := range faults {
			r.proves(fault, 2, ownDelay)
			fault.Clear()
		}
		r.scaledDone(ctx, scaledTo)
		for _, k := range r.deletedOfKinds(ctx) {
			r.unproven = append(r.unproven, k.name+": stock did nothing wrong")
		}
	},
})

// Pod events come late, somebody deletes half of the pods, and then half of them are called for. Every stock arm deletes
// as many others.
var _ = describe(scenario{
	number: 30, title: "pod events delayed by 15 s: pods of a ReplicaSet, a ReplicationController and a Job deleted by somebody, then scaled down", label: ordinary,
	hurts: rig.U1, rules: lostRules(), idle: true,
	mutants: []without{{"pods-replicaset", scaledReplicaSet.lost()}, {"pods-job", scaledJob.lost()}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.createScaled(ctx)
		r.told(ctx, truth.Pods)
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: podsDelay})
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		for _, k := range scaledKinds {
			list, err := pods.List(ctx, k.pods())
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			for i := range scaledTo / 2 {
				gomega.Expect(pods.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{})).To(gomega.Succeed())
			}
		}
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)
		r.scaleAll(ctx, scaledTo/2)
		r.passes(ctx, "the controllers to act", fault.Stats().Since, podsDelay-3*time.Second)
		r.proves(fault, len(scaledKinds)*scaledTo/2, podsDelay-3*time.Second)
		fault.Clear()
		r.scaledDone(ctx, scaledTo/2)
		r.deletedOfKinds(ctx) // Stock chooses at random, and may once happen to choose those that are gone.
	},
})

func (r *run) createScaled(ctx context.Context) {
	ginkgo.GinkgoHelper()
	for _, k := range scaledKinds {
		gomega.Expect(k.create(ctx, r)).To(gomega.Succeed())
	}
	r.converges(ctx, "without fault", patience, func() error { return r.scaledPods(ctx, scaledTo) })
}

func (r *run) scaleAll(ctx context.Context, pods int) {
	ginkgo.GinkgoHelper()
	for _, k := range scaledKinds {
		gomega.Expect(k.scale(ctx, r, pods)).To(gomega.Succeed())
	}
}

// scaledDone waits for the end state, but for arms that have to make Jobs' pods anew, which takes them half a minute.
func (r *run) scaledDone(ctx context.Context, pods int) {
	if r.Arm != rig.P {
		return
	}
	r.figure("L after", "%v", rounded(r.converges(ctx, "every owner has its pods", stepLimit, func() error { return r.scaledPods(ctx, pods) })))
}

// scaledPods returns nil if each owner has so many pods, and all of them are Ready.
func (r *run) scaledPods(ctx context.Context, want int) error {
	for _, k := range scaledKinds {
		list, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, k.pods())
		if err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if ready(&list.Items[i]) {
				n++
			}
		}
		if n != want || len(list.Items) != want {
			return fmt.Errorf("%s has %d pods, %d of them Ready, in place of %d", k.name, len(list.Items), n, want)
		}
	}
	return nil
}

// deletedOfKinds notes how many pods the controllers have deleted, all of which were called for. It returns the kinds of
// which there were none, though the arm is one that must go wrong.
func (r *run) deletedOfKinds(ctx context.Context) (unhurt []scaledKind) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
	writes, err := r.Writes()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	deleted := oracle.DeletedBy(r.Truth, writes)
	for _, k := range scaledKinds {
		n := deleted[k.account]
		r.figure(k.name+": pods deleted", "%d", n)
		if n > 0 {
			r.violate(oracle.Violation{Oracle: "S2", Rule: k.lost(), Object: scaled, Time: time.Now(), Detail: fmt.Sprint(n)})
		} else if r.Arm == rig.U1 {
			unhurt = append(unhurt, k)
		}
	}
	return unhurt
}
