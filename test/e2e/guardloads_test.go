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
	resourceapi "k8s.io/api/resource/v1"
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
	// guardClaims are the pods with claims. So many pods that have ended stay.
	guardClaims = 500
	// partVariable makes the loads so many times smaller.
	partVariable = "BENCH_PART"
)

// guardArgs have the controllers take a while, as with their default limits, but not minutes.
var guardArgs = []string{"--kube-api-qps=100", "--kube-api-burst=100"}

var _ = ginkgo.Describe("Benchmark: cost of decisions that need a proof, without a fault", ginkgo.Serial, ginkgo.Label(benchmark, "bench:guards"), gates.StaleControllerConsistency(), func() {
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
		loads := []load{quotaLoad(50/part, 40), budgetLoad(100/part, 10), orphanLoad(5000 / part), claimLoad(guardClaims / part), endedLoad(2000/part, guardClaims/part), cronJobLoad(200 / part)}
		loads = slices.DeleteFunc(loads, func(l load) bool { return !strings.Contains(l.name, os.Getenv(loadNamesVariable)) })
		r := turns(ctx, controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}})
		r.kcmArgs = append(guardArgs, fmt.Sprintf("--terminated-pod-gc-threshold=%d", guardClaims/part))
		all := r.loadCosts(ctx, rounds, arms, loads)
		say(costTable(all))
		for _, c := range all {
			for resource, n := range c.Proofs {
				gomega.Expect(n).To(gomega.BeNumerically("<=", c.Seconds/guardFences.Seconds()+1), "proofs of %s in %.1f s: %s, %s", resource, c.Seconds, c.Load, c.Contender)
			}
		}
		for _, l := range loads {
			stock, ours := selectCosts(all, l.name, contenderU1), selectCosts(all, l.name, contenderQuiet)
			if len(stock) == 0 || len(ours) == 0 {
				continue
			}
			calls, seconds := func(c cost) float64 { return float64(c.calls()) }, func(c cost) float64 { return c.Seconds }
			gomega.Expect(middle(valuesOf(ours, calls))).To(gomega.BeNumerically("<=", guardMore*middle(valuesOf(stock, calls))+guardCalls), "%s: requests, stock %.0f", l.name, middle(valuesOf(stock, calls)))
			late := max(l.late, guardFences) // The last decision of a load may wait for the next proof.
			gomega.Expect(middle(valuesOf(ours, seconds))).To(gomega.BeNumerically("<=", guardMore*middle(valuesOf(stock, seconds))+late.Seconds()), "%s: seconds, stock %.1f", l.name, middle(valuesOf(stock, seconds)))
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
	pod.Namespace, pod.Spec.SchedulerName = namespace, noScheduler
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

// orphanLoad has an owner deleted whose dependents are to be orphaned.
func orphanLoad(dependents int) load {
	return load{name: fmt.Sprintf("%d dependents orphaned", dependents), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		secrets, maps := r.Client.CoreV1().Secrets(namespace), r.Client.CoreV1().ConfigMaps(namespace)
		owner, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: orphansOwner}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		many(ctx, dependents, func(i int) error {
			_, err := maps.Create(ctx, dependentMap(owner, fmt.Sprintf("%s-%04d", orphansOwner, i)), metav1.CreateOptions{})
			return err
		})
		gomega.Expect(secrets.Delete(ctx, owner.Name, orphaning)).To(gomega.Succeed())
		r.counts(ctx, "the owner to be gone", 0, func() (int, error) {
			list, err := secrets.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		})
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "app=" + orphansOwner})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(list.Items).To(gomega.HaveLen(dependents))
		gomega.Expect(list.Items).To(gomega.HaveEach(gomega.HaveField("OwnerReferences", gomega.BeEmpty())))
	}}
}

// claimLoad has pods end for each of which a claim was made from a template, and allocated as a scheduler does.
func claimLoad(pods int) load {
	return load{name: fmt.Sprintf("%d claims of pods that end", pods), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		claims := r.Client.ResourceV1().ResourceClaims(namespace)
		template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "device"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: workload.DeviceClaim("", onlyDevice, time.Minute).Spec}}
		_, err := r.Client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, template, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		many(ctx, pods, func(i int) error {
			pod := strayPod(namespace, i)
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template.Name}}
			_, err := r.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
		r.counts(ctx, "all pods to have a claim", pods, func() (done int, err error) {
			list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			for _, pod := range list.Items {
				done += len(pod.Status.ResourceClaimStatuses)
			}
			return done, nil
		})
		list, err := claims.List(ctx, metav1.ListOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(list.Items).To(gomega.HaveLen(pods))
		many(ctx, pods, func(i int) error {
			owner := list.Items[i].OwnerReferences[0]
			return r.allocate(ctx, &list.Items[i], owner.Name, owner.UID)
		})
		many(ctx, pods, func(i int) error { return r.ends(ctx, namespace, i) })
		r.counts(ctx, "all claims to be deleted", 0, func() (int, error) {
			list, err := claims.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		})
	}}
}

// ends has a stray pod succeed.
func (r *run) ends(ctx context.Context, namespace string, i int) error {
	_, err := r.Client.CoreV1().Pods(namespace).Patch(ctx, strayPod(namespace, i).Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	return err
}

// endedLoad has pods end that podgc deletes, but those that it keeps. They wait for a pass.
func endedLoad(pods, kept int) load {
	return load{name: fmt.Sprintf("%d ended pods", pods), late: podGCPeriod, run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		many(ctx, pods+kept, func(i int) error {
			_, err := r.Client.CoreV1().Pods(namespace).Create(ctx, strayPod(namespace, i), metav1.CreateOptions{})
			return err
		})
		many(ctx, pods+kept, func(i int) error { return ignoreNotFound(r.ends(ctx, namespace, i)) })
		r.counts(ctx, "all but those that are kept to be deleted", kept, func() (int, error) {
			list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		})
	}}
}
