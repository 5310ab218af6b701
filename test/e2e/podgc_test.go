// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// podGCPeriod is how often pod garbage collection looks at all pods.
	podGCPeriod    = 20 * time.Second
	podGCThreshold = 1
	remadePods     = 10
	// toldLimit is how soon the page shows what waits: a controller that looks again at that moment waits for nothing.
	toldLimit      = 5 * time.Second
	slowPassPods   = 60
	slowPassRemade = 30
)

var podGCArgs = []string{fmt.Sprintf("--terminated-pod-gc-threshold=%d", podGCThreshold)}

// Pods end, and are made again under their names, while pod events are held; no more pods than the threshold have ended then.
// Every stock arm deletes all but one of the new pods, and the one that may stay. Afterwards pods that have ended must
// still go.
var _ = describe(scenario{
	number: 32, title: "pod events held: pods that had ended made again under their names", label: ordinary,
	incidents: []string{"141887"},
	hurts:     rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"proof-podgc", oracle.RuleUnjustified}}, gaps: []int{12}, idle: true,
	options: rig.Options{KCMArgs: podGCArgs},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.PodGCDeletes(podGCThreshold))
		r.runGroup(ctx, "first", podGCThreshold+1)
		r.runGroup(ctx, "remade", remadePods)
		r.endPods(ctx, "first", podGCThreshold+1)
		r.eventually(ctx, "a pass", func() (bool, error) { return r.evicted("first") == 1, nil })
		pass := r.lastDeleted("first")

		r.endPods(ctx, "remade", remadePods)
		r.told(ctx, truth.Pods)
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		r.remake(ctx, "remade", 0, remadePods)
		made := time.Since(pass)
		r.figure("V made again before the pass", "%v", rounded(podGCPeriod-made))
		if made >= podGCPeriod {
			r.unproven = append(r.unproven, "the pods were made again too late")
		}
		r.passes(ctx, "the next pass", pass, podGCPeriod+5*time.Second)
		r.proves(hold, 2*remadePods, podGCPeriod-made)
		r.putOff(ctx, "podgc", truth.Pods)
		hold.Clear()
		r.told(ctx, truth.Pods)
		r.figure("running pods left", "%d of %d", r.running("remade"), remadePods)
		r.figure("ended pods left", "%d of %d", r.ended(), podGCThreshold)

		r.runGroup(ctx, "later", 3)
		r.endPods(ctx, "later", 3)
		r.figure("later ones deleted after", "%v", rounded(r.converges(ctx, "pods that have ended are deleted", podGCPeriod+stepLimit, func() error {
			if n := r.ended(); n != podGCThreshold {
				return fmt.Errorf("%d pods that have ended are left", n)
			}
			return nil
		})))
	},
})

// A pass takes 12 s, because of the client's rate limit, and pods that it is about to delete are made again under their
// names meanwhile. No cache is stale. Every stock arm deletes the new ones.
var _ = describe(scenario{
	number: 32, title: "pods made again under their names while a pass over pods that have ended goes on", label: ordinary,
	incidents: []string{"141887"},
	hurts:     rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"uid-podgc", oracle.RuleUnjustified}}, gaps: []int{12}, idle: true,
	options: rig.Options{KCMArgs: append([]string{"--kube-api-qps=5", "--kube-api-burst=5"}, podGCArgs...)},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.PodGCDeletes(podGCThreshold))
		r.runGroup(ctx, "slow", slowPassPods)
		r.passes(ctx, "the first ones to be the youngest, so that they stay", time.Now(), time.Second)
		r.runGroup(ctx, "first", podGCThreshold+1)
		r.endPods(ctx, "first", podGCThreshold+1)
		r.eventually(ctx, "a pass", func() (bool, error) { return r.evicted("first") == 1, nil })
		r.endPods(ctx, "slow", slowPassPods)
		r.eventually(ctx, "the next pass to delete the first pods", func() (bool, error) { return r.evicted("slow") > 0, nil })
		began := time.Now()
		r.remake(ctx, "slow", slowPassPods-slowPassRemade, slowPassRemade)
		r.figure("V made again within", "%v", rounded(time.Since(began)))
		r.converges(ctx, "pods that have ended are deleted", podGCPeriod+stepLimit, func() error {
			if n := r.ended(); n > podGCThreshold {
				return fmt.Errorf("%d pods that have ended are left", n)
			}
			return nil
		})
		r.figure("running pods left", "%d of %d", r.running("slow"), slowPassRemade)
	},
})

// decideLive are the controllers whose actions a live read decides, so that none need wait at any one time.
var decideLive = sets.New("cronjob", "resourceclaim", "endpoint")

// putOff notes how often a controller was seen to put something off for a resource, and why the page says that it waits, which must be so on P.
// It is called while what is put off waits.
func (r *run) putOff(ctx context.Context, controller string, resource schema.GroupResource) {
	ginkgo.GinkgoHelper()
	if r.Arm != rig.P {
		return
	}
	why := ""
	_ = rig.Wait(ctx, toldLimit, "the page to show what waits", func() (bool, error) {
		for _, w := range readStalenessz(ctx, r).Waits {
			if w.Controller == controller {
				why = fmt.Sprintf("%s: %s", w.For, w.Why)
			}
		}
		return why != "" || decideLive.Has(controller), nil
	})
	n := series(ctx, r, "stale_controller_unproven_actions_total", fmt.Sprintf("controller=%q", controller), fmt.Sprintf("resource=%q", resource.Resource))
	r.figure("put off for "+resource.Resource, "%.0f, %s", n, cmp.Or(why, "nothing waits now"))
	if n == 0 {
		r.unwaited = append(r.unwaited, controller+" put nothing off")
	}
	if why == "" && !decideLive.Has(controller) {
		r.unwaited = append(r.unwaited, "the page shows nothing that "+controller+" waits for")
	}
}

// runGroup makes pods, and waits until the KCM knows that they run. They are on no node: kwok finishes deletions by name, too.
func (r *run) runGroup(ctx context.Context, group string, count int) {
	ginkgo.GinkgoHelper()
	for i := range count {
		r.createPod(ctx, group, i)
	}
	r.runs(ctx, group, count)
}

func (r *run) createPod(ctx context.Context, group string, i int) {
	ginkgo.GinkgoHelper()
	pod := workload.Orphan(nameOf(group, i), group, "")
	pod.Labels["group"] = group
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	// Stock may have deleted it by now.
	gomega.Expect(r.setPhase(ctx, pod.Name, corev1.PodRunning)).To(gomega.Or(gomega.Succeed(), gomega.MatchError(apierrors.IsNotFound, "not found")))
}

func (r *run) setPhase(ctx context.Context, pod string, phase corev1.PodPhase) error {
	_, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, pod, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	return err
}

func nameOf(group string, i int) string { return fmt.Sprintf("%s-%02d", group, i) }

// endPods has pods succeed.
func (r *run) endPods(ctx context.Context, group string, count int) {
	ginkgo.GinkgoHelper()
	for i := range count {
		gomega.Expect(r.setPhase(ctx, nameOf(group, i), corev1.PodSucceeded)).To(gomega.Succeed())
	}
	r.eventually(ctx, "the truth to have the pods ended", func() (bool, error) {
		n := 0
		for _, e := range r.Truth.Events(truth.Pods) {
			if e.Type == watch.Modified && e.Object.(*corev1.Pod).Labels["group"] == group && e.Object.(*corev1.Pod).Status.Phase == corev1.PodSucceeded {
				n++
			}
		}
		return n >= count, nil
	})
}

// remake deletes pods and makes others under their names, which run.
func (r *run) remake(ctx context.Context, group string, from, count int) {
	ginkgo.GinkgoHelper()
	pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for i := from; i < from+count; i++ {
		gomega.Expect(pods.Delete(ctx, nameOf(group, i), *metav1.NewDeleteOptions(0))).To(gomega.Or(gomega.Succeed(), gomega.MatchError(apierrors.IsNotFound, "not found")))
		r.createPod(ctx, group, i)
	}
}

// running counts the pods of a group that have not ended.
func (r *run) running(group string) int {
	n := 0
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if pod := e.Object.(*corev1.Pod); pod.Labels["group"] == group && !oracle.Ended(pod) {
			n++
		}
	}
	return n
}

// ended counts the pods that have ended.
func (r *run) ended() int {
	n := 0
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if oracle.Ended(e.Object.(*corev1.Pod)) {
			n++
		}
	}
	return n
}
