// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// guardHands is how many requests of a load of this file are under way at the same time.
	guardHands = 16
	// guardFences is how often a resource may be asked about for decisions, guardMore how much more of anything ours may take.
	guardFences = 2 * time.Second
	// Besides, guardCalls make no difference to a load of full size, and may to a part of one.
	guardMore  = 1.05
	guardCalls = 15
	// partVariable makes the loads so many times smaller.
	partVariable = "BENCH_PART"
)

// guardArgs have podgc take a while, as with its default limits, but not minutes.
var guardArgs = []string{"--kube-api-qps=100", "--kube-api-burst=100", "--terminated-pod-gc-threshold=1"}

var _ = ginkgo.Describe("Benchmark: cost of quotas, budgets and ended pods without a fault", ginkgo.Serial, ginkgo.Label(benchmark, "bench:guards"), gates.StaleControllerConsistency(), func() {
	ginkgo.It("is that of stock, and at most one proof of a resource in 2 s", func(ctx context.Context) {
		rounds := 1
		if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
			rounds = n
		}
		arms := chosenArms(contenderU1, contenderQuiet)
		part := 1
		if n, err := strconv.Atoi(os.Getenv(partVariable)); err == nil {
			part = n
		}
		loads := []load{quotaLoad(50/part, 40), budgetLoad(100/part, 10), endedLoad(2000 / part)}
		loads = slices.DeleteFunc(loads, func(l load) bool { return !strings.Contains(l.name, os.Getenv(loadNamesVariable)) })
		r := turns(ctx, controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}})
		r.kcmArgs = guardArgs
		all := r.loadCosts(ctx, rounds, arms, loads)
		say(costTable(all))
		for _, c := range all {
			for resource, n := range c.Proofs {
				gomega.Expect(n).To(gomega.BeNumerically("<=", c.Seconds/guardFences.Seconds()+1), "proofs of %s in %.1f s: %s, %s", resource, c.Seconds, c.Load, c.Contender)
			}
		}
		for _, l := range distinct(all, func(c cost) string { return c.Load }) {
			stock, ours := selectCosts(all, l, contenderU1), selectCosts(all, l, contenderQuiet)
			if len(stock) == 0 || len(ours) == 0 {
				continue
			}
			calls, seconds := func(c cost) float64 { return float64(c.calls()) }, func(c cost) float64 { return c.Seconds }
			gomega.Expect(middle(valuesOf(ours, calls))).To(gomega.BeNumerically("<=", guardMore*middle(valuesOf(stock, calls))+guardCalls), "%s: requests, stock %.0f", l, middle(valuesOf(stock, calls)))
			// Ended pods wait for the next pass.
			gomega.Expect(middle(valuesOf(ours, seconds))).To(gomega.BeNumerically("<=", guardMore*middle(valuesOf(stock, seconds))+podGCPeriod.Seconds()), "%s: seconds, stock %.1f", l, middle(valuesOf(stock, seconds)))
		}
	}, ginkgo.SpecTimeout(time.Hour))
})

// many does something so many times, several at a time.
func many(ctx context.Context, n int, do func(i int) error) {
	ginkgo.GinkgoHelper()
	failed := make([]error, n)
	workqueue.ParallelizeUntil(ctx, guardHands, n, func(i int) { failed[i] = do(i) })
	for _, err := range failed {
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// strayPod is a pod that nobody schedules.
func strayPod(namespace string, i int) *corev1.Pod {
	pod := workload.Orphan(fmt.Sprintf("pod-%04d", i), "guard", "")
	pod.Namespace, pod.Spec.SchedulerName = namespace, "nobody"
	return pod
}

// quotaLoad fills quotas, each in a namespace of its own, and empties them.
func quotaLoad(quotas, pods int) load {
	child := func(namespace string, i int) string { return fmt.Sprintf("%s-%02d", namespace, i) }
	names := func(namespace string) (out []string) {
		for i := range quotas {
			out = append(out, child(namespace, i))
		}
		return out
	}
	return load{name: fmt.Sprintf("%d quotas with %d pods filled and emptied", quotas, quotas*pods), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		for _, name := range names(namespace) {
			r.namespace(ctx, name, nil)
			_, err := r.Client.CoreV1().ResourceQuotas(name).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"},
				Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(strconv.Itoa(pods)), "count/pods": resource.MustParse(strconv.Itoa(pods))}}}, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		used := func(n int) func() (int, error) {
			return func() (done int, err error) {
				list, err := r.Client.CoreV1().ResourceQuotas("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
				if err != nil {
					return 0, err
				}
				for _, q := range list.Items {
					pods, known := q.Status.Used[corev1.ResourcePods]
					if strings.HasPrefix(q.Namespace, namespace+"-") && known && pods.Value() == int64(n) {
						done++
					}
				}
				return done, nil
			}
		}
		r.counts(ctx, "all quotas to count", quotas, used(0))
		many(ctx, quotas*pods, func(i int) error {
			pod := strayPod(child(namespace, i%quotas), i)
			_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
		r.counts(ctx, "all quotas to be full", quotas, used(pods))
		many(ctx, quotas*pods, func(i int) error {
			pod := strayPod(child(namespace, i%quotas), i)
			return r.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		})
		r.counts(ctx, "all quotas to be empty", quotas, used(0))
	}, clean: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		r.removeNamespaces(ctx, names(namespace)...)
	}}
}

// budgetLoad has the pods of ReplicaSets become ready under budgets, and evicts one of each.
func budgetLoad(budgets int, pods int32) load {
	return load{name: fmt.Sprintf("%d budgets with %d pods drained of one each", budgets, budgets*int(pods)), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		name := func(i int) string { return fmt.Sprintf("set-%03d", i) }
		many(ctx, budgets, func(i int) error {
			rs := workload.ReplicaSet(name(i), pods)
			rs.Namespace = namespace
			if _, err := r.Client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name(i)},
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: rs.Spec.Selector, MaxUnavailable: new(intstr.FromInt32(1))}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := r.Client.AppsV1().ReplicaSets(namespace).Create(ctx, rs, metav1.CreateOptions{})
			return err
		})
		allow := func() (done int, err error) {
			list, err := r.Client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			for _, b := range list.Items {
				if b.Status.DisruptionsAllowed == 1 && b.Status.CurrentHealthy == pods {
					done++
				}
			}
			return done, nil
		}
		r.counts(ctx, "all budgets to allow an eviction", budgets, allow)
		list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		evicted := map[string]string{}
		for _, pod := range list.Items {
			evicted[pod.Labels["app"]] = pod.Name
		}
		many(ctx, budgets, func(i int) error {
			return r.Client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: evicted[name(i)]}})
		})
		r.counts(ctx, "all budgets to allow another eviction", budgets, allow)
	}}
}

// endedLoad has pods end that podgc deletes, but one.
func endedLoad(pods int) load {
	return load{name: fmt.Sprintf("%d ended pods", pods), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		many(ctx, pods, func(i int) error {
			_, err := r.Client.CoreV1().Pods(namespace).Create(ctx, strayPod(namespace, i), metav1.CreateOptions{})
			return err
		})
		many(ctx, pods, func(i int) error {
			_, err := r.Client.CoreV1().Pods(namespace).Patch(ctx, strayPod(namespace, i).Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
			return ignoreNotFound(err)
		})
		r.counts(ctx, "all but one to be deleted", 1, func() (int, error) {
			list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		})
	}}
}
