// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// ofEachKind is how many owners of a kind there are, each with one pod.
	ofEachKind = 3
	// remadeGoal is how soon after the cache caught up a pod must have been made anew.
	remadeGoal = time.Second

	ruleRemade = "pod recreated late"
)

// ownerKind is a kind of owner besides DaemonSet. create makes one that asks for one pod.
type ownerKind struct {
	name, short string
	create      func(ctx context.Context, r *run, name string) (metav1.Object, error)
}

func podTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: workload.Image}}},
	}
}

var (
	replicaSets = ownerKind{"ReplicaSet", "rs", func(ctx context.Context, r *run, name string) (metav1.Object, error) {
		template := podTemplate(name)
		return r.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Template: template,
				Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
		}, metav1.CreateOptions{})
	}}
	replicationControllers = ownerKind{"ReplicationController", "rc", func(ctx context.Context, r *run, name string) (metav1.Object, error) {
		return r.Client.CoreV1().ReplicationControllers(metav1.NamespaceDefault).Create(ctx, &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](1), Template: new(podTemplate(name))},
		}, metav1.CreateOptions{})
	}}
	statefulSets = ownerKind{"StatefulSet", "sts", func(ctx context.Context, r *run, name string) (metav1.Object, error) {
		template := podTemplate(name)
		return r.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Template: template,
				Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
		}, metav1.CreateOptions{})
	}}
)

var ownersRig = rig.Options{
	KCMArgs: quickClient,
	Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: heldOwners}},
}

// Scenario 2 for the other kinds of owner. ReplicaSet and ReplicationController on stock upstream expect the pod
// that they will never see for five minutes; StatefulSet expects nothing, but is retried with backoff.
var _ = describe(scenario{
	number: 2, title: "pods of other kinds created and deleted while the pod watch is held; relist", label: long,
	hurts: rig.U1, rules: []string{ruleRemade}, mutants: []without{{"own-writes", ruleRemade}, {"wake", ruleRemade}}, options: ownersRig, idle: true,
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		owners := createOfEach(ctx, r, replicaSets, replicationControllers, statefulSets)
		r.eventually(ctx, "a pod of each owner", func() (bool, error) { return len(podsMade(r, owners, 0)) == len(owners), nil })
		for _, made := range podsMade(r, owners, 0) {
			deleteNow(ctx, r, made[0].Name)
		}
		r.waitDeleted(ctx, len(owners))
		stayHeld(ctx, hold)
		gone := r.lastRV(truth.Pods, isDeleted)
		r.inject(faultproxy.Target{Resource: truth.Pods, Running: true}, faultproxy.Gone{}).Clear()
		r.remade(ctx, owners, gone, r.caughtUp(ctx, truth.Pods, gone, stepLimit))
		r.proves(hold, 2*len(owners), heldFor)
		hold.Clear()
		r.endsWithPods(ctx, owners, 2)
	},
})

// A pod is created, the answer is lost, and the pod watch is held, so that the cache does not show it either.
// Stock upstream takes the creation for failed and creates another pod at once. A StatefulSet gives its pods
// names, so that it cannot make one twice.
var _ = describe(scenario{
	number: 2, title: "answers to creations of pods lost while the pod watch is held", label: ordinary,
	hurts: rig.U1, rules: []string{ruleDigest}, mutants: []without{{"lost-answers", ruleDigest}}, options: ownersRig, idle: true,
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		lost := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.LoseAnswers{Verbs: []string{"create"}, Count: 2 * ofEachKind})
		owners := createOfEach(ctx, r, replicaSets, replicationControllers)
		r.eventually(ctx, "the answers to be lost", func() (bool, error) { return lost.Stats().Requests == len(owners), nil })
		// Time enough for the retries of an arm that does not wait.
		r.eventually(ctx, "a second pod, or a while without", func() (bool, error) {
			made := podsMade(r, owners, 0)
			twice := func(events []truth.Event) bool { return len(events) > 1 }
			return slices.ContainsFunc(slices.Collect(maps.Values(made)), twice) || time.Since(hold.Stats().Since) >= heldFor, nil
		})
		lost.Clear()
		r.proves(hold, len(owners), 0)
		hold.Clear()
		if r.Arm == rig.P {
			r.figure("writes of unknown outcome", "%v", series(ctx, r, "stale_controller_unsettled_writes_total"))
		}
		r.endsWithPods(ctx, owners, 1)
	},
})

// createOfEach makes owners of the kinds and returns their names.
func createOfEach(ctx context.Context, r *run, kinds ...ownerKind) map[types.UID]string {
	ginkgo.GinkgoHelper()
	owners := map[types.UID]string{}
	for _, k := range kinds {
		for i := range ofEachKind {
			owner, err := k.create(ctx, r, fmt.Sprintf("%s-%d", k.short, i))
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			owners[owner.GetUID()] = k.name + " " + owner.GetName()
		}
	}
	return owners
}

// podsMade returns the creations of the owners' pods after a resource version, by owner.
func podsMade(r *run, owners map[types.UID]string, after uint64) map[types.UID][]truth.Event {
	made := map[types.UID][]truth.Event{}
	for _, e := range r.Truth.Events(truth.Pods) {
		ref := metav1.GetControllerOfNoCopy(e.Object.(*corev1.Pod))
		if ref == nil || e.Type != watch.Added || e.RV <= after {
			continue
		}
		if _, ours := owners[ref.UID]; ours {
			made[ref.UID] = append(made[ref.UID], e)
		}
	}
	return made
}

// remade is the oracle of what follows on a relist: each owner has made a new pod soon after the cache caught up.
func (r *run) remade(ctx context.Context, owners map[types.UID]string, gone string, caughtUp time.Time) {
	ginkgo.GinkgoHelper()
	after, err := strconv.ParseUint(gone, 10, 64)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	// What is stuck is judged below, so the wait's own error says nothing more.
	_ = rig.Wait(ctx, wakeLimit, "a new pod of each owner", func() (bool, error) {
		return len(podsMade(r, owners, after)) == len(owners), nil
	})
	made := podsMade(r, owners, after)
	var took []time.Duration
	for uid, name := range owners {
		d := wakeLimit
		if events := made[uid]; len(events) > 0 {
			d = max(0, events[0].Time.Sub(caughtUp))
		}
		took = append(took, d)
		if d > remadeGoal {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleRemade, Object: name, Time: caughtUp,
				Detail: fmt.Sprintf("%v after the cache had caught up (never: %t)", d, len(made[uid]) == 0)})
		}
	}
	slices.Sort(took)
	r.figure("pod recreated p50", "%v", rounded(took[len(took)/2]))
	r.figure("pod recreated p99", "%v", rounded(took[len(took)-1]))
	r.figure("never recreated", "%d of %d", len(owners)-len(made), len(owners))
}

// endsWithPods is L: each owner has one running pod, and has made so many in all.
func (r *run) endsWithPods(ctx context.Context, owners map[types.UID]string, made int) {
	ginkgo.GinkgoHelper()
	took := r.converges(ctx, "every owner has its pod", wakeLimit, func() error {
		running := map[types.UID]int{}
		for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
			pod := e.Object.(*corev1.Pod)
			if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				running[ref.UID]++
			}
		}
		for uid, name := range owners {
			if running[uid] != 1 {
				return fmt.Errorf("%s has %d running pods", name, running[uid])
			}
		}
		return nil
	})
	r.figure("L after", "%v", rounded(took))
	surplus := 0
	for uid, events := range podsMade(r, owners, 0) {
		if len(events) == made {
			continue
		}
		surplus += len(events) - made
		r.violate(oracle.Violation{Oracle: "L", Rule: ruleDigest, Object: owners[uid], Time: time.Now(),
			Detail: fmt.Sprintf("%d pods created, without faults %d", len(events), made)})
	}
	r.figure("pods created beyond those of a fault-free run", "%d", surplus)
}
