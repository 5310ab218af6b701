// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	slowHandler = "disruption"
	// For each event of a pod that handler compares the pod with slowBudgets budgets, of slowValues values each, which takes
	// it some 30 ms of a processor.
	slowBudgets, slowValues = 40, 1200
	// lateBudgets have a pod each, of which the controller is told late.
	lateBudgets = 100
	// comeAndGo is how many pods come and go at a time.
	comeAndGo = 8
	// farBehind is how far behind the slow handler must come to be, while the others must be less than keepsUp behind.
	farBehind = 4 * time.Second
	keepsUp   = 2 * time.Second

	ruleUntold  = "handler that is behind not told"
	ruleSlander = "handler that keeps up called late"
	ruleCaught  = "handler that has caught up not told"
)

// One event handler of the pods' informer takes long for each event, and many pods come and go: the cache is fresh, while
// what one controller knows is many seconds old. Stock says nothing of that, and does nothing else either.
var _ = describe(scenario{
	number: 31, title: "pods come and go faster than one event handler can be told", label: ordinary, gate: gates.MonitorInformerStaleness,
	incidents: []string{"121474"},
	idle:      true, mutants: []without{{"handler-lag", ruleUntold}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		if r.Arm != rig.P {
			r.untold(ctx)
			return
		}
		const late = "late"
		budgets := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
		values := make([]string, slowValues)
		for i := range values {
			values[i] = fmt.Sprint("none-", i)
		}
		for i := range slowBudgets {
			createBudget(ctx, r, fmt.Sprint("slow-", i), &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values},
			}})
		}
		for i := range lateBudgets {
			createBudget(ctx, r, nameOf(late, i), &metav1.LabelSelector{MatchLabels: map[string]string{"app": nameOf(late, i)}})
		}
		r.eventually(ctx, "the budgets to be known", func() (bool, error) {
			list, err := budgets.List(ctx, metav1.ListOptions{})
			for i := range list.Items {
				if list.Items[i].Status.ObservedGeneration == 0 {
					return false, err
				}
			}
			return err == nil, err
		})

		// Pods come and go until the controller is so far behind, however fast the machine is. By the status of a budget it tells that it was
		// told of the one pod of that budget.
		told := func(i int) (bool, error) {
			b, err := budgets.Get(ctx, nameOf(late, i), metav1.GetOptions{})
			return err == nil && b.Status.ExpectedPods == 1, err
		}
		oldest := 0 // that it was not told of
		var created []time.Time
		var last *corev1.Pod
		node := r.Cluster.Nodes().Names()[0]
		r.eventually(ctx, "the controller to be far behind", func() (bool, error) {
			for ; oldest < len(created); oldest++ {
				if ok, err := told(oldest); err != nil {
					return false, err
				} else if !ok {
					break
				}
			}
			if oldest < len(created) && time.Since(created[oldest]) > farBehind {
				return time.Since(created[oldest]) > farBehind+keepsUp, nil // What there is may be enough.
			}
			if err := r.comeAndGo(ctx, node, len(created)*comeAndGo); err != nil {
				return false, err
			}
			if len(created) == lateBudgets {
				return false, fmt.Errorf("the controller was told of %d pods in time", oldest)
			}
			name := nameOf(late, len(created))
			pod := workload.Orphan(name, name, node)
			var err error
			if last, err = r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return false, err
			}
			created = append(created, time.Now())
			return false, nil
		})
		most, others := lags(ctx, r)
		r.figure("pods that came and went", "%d", len(created)*comeAndGo)
		r.eventually(ctx, "the cache to have the last pod", func() (bool, error) {
			return r.Told(truth.Pods, last.ResourceVersion)
		})
		set := create(ctx, r, workload.DaemonSet("beside"))
		r.figure("a DaemonSet beside done after", "%v", rounded(r.converges(ctx, "beside", stepLimit, r.daemonSetDone(set, 2))))

		r.eventually(ctx, "the controller to be told of the last pod", func() (bool, error) {
			slow, rest := lags(ctx, r)
			most, others = max(most, slow), max(others, rest)
			return told(len(created) - 1)
		})
		r.figure("the controller was told after; lag published, others'", "%v; %.1fs, %.1fs", rounded(time.Since(created[len(created)-1])), most, others)
		if most < farBehind.Seconds() {
			r.violate(oracle.Violation{Oracle: "M", Rule: ruleUntold, Object: slowHandler, Time: time.Now(), Detail: fmt.Sprintf("%.1fs published, more than %v in truth", most, farBehind+keepsUp)})
		}
		if others > keepsUp.Seconds() {
			r.violate(oracle.Violation{Oracle: "M", Rule: ruleSlander, Time: time.Now(), Detail: fmt.Sprintf("%.1fs", others)})
		}
		if err := rig.Wait(ctx, stepLimit, "the lag to be over", func() (bool, error) {
			slow, _ := lags(ctx, r)
			return slow == 0, nil
		}); err != nil {
			r.violate(oracle.Violation{Oracle: "M", Rule: ruleCaught, Object: slowHandler, Time: time.Now(), Detail: err.Error()})
		}
	},
})

// comeAndGo makes pods, and deletes them, side by side: so many events come at a time, how long ever a request takes.
func (r *run) comeAndGo(ctx context.Context, node string, from int) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range comeAndGo {
		group.Go(func() error {
			pod := workload.Orphan(nameOf("short-lived", from+i), "short-lived", node)
			pods := r.Client.CoreV1().Pods(pod.Namespace)
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
			return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		})
	}
	return group.Wait()
}

func createBudget(ctx context.Context, r *run, name string, selector *metav1.LabelSelector) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: new(intstr.FromInt32(1_000_000))},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// lags are in seconds how far the slow handler of pods is behind, and the slowest of the others, by the page and the metrics.
func lags(ctx context.Context, r *run) (slow, others float64) {
	ginkgo.GinkgoHelper()
	c, ok := cacheOf(readStalenessz(ctx, r), truth.Pods)
	gomega.Expect(ok).To(gomega.BeTrue(), stalenessz.Path)
	known := false
	for _, h := range c.Handlers {
		if h.Name == slowHandler {
			slow, known = h.LagSeconds, true
		} else {
			others = max(others, h.LagSeconds)
		}
	}
	gomega.Expect(known).To(gomega.BeTrue(), "the page has the handler")
	metric := series(ctx, r, "informer_staleness_handler_lag_seconds", `resource="pods"`, fmt.Sprintf("handler=%q", slowHandler))
	return min(slow, metric), others
}
