// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const smokeNodes = 50

// The binary, the seam, the gates and the control plane hold together; nothing is faulted here.
var _ = ginkgo.Describe("Fresh KCM on a real control plane", ginkgo.Label("smoke"), ginkgo.Ordered, func() {
	var (
		cluster *controlplane.Cluster
		kcm     *controlplane.KCM
		client  kubernetes.Interface
	)

	ginkgo.BeforeAll(func(ctx context.Context) {
		var err error
		cluster, err = controlplane.Start(ctx, controlplane.Options{
			Nodes: controlplane.NodeOptions{Count: smokeNodes},
			KCMs:  []controlplane.KCMOptions{{Arm: controlplane.ArmP}},
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if ginkgo.CurrentSpecReport().Failed() {
				cluster.Keep()
				ginkgo.GinkgoWriter.Println("logs are kept in", cluster.Dir())
			}
			gomega.Expect(cluster.Stop(ctx)).To(gomega.Succeed())
		})
		kcm = cluster.KCMs()[0]
		client, err = kubernetes.NewForConfig(cluster.AdminConfig())
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}, ginkgo.NodeTimeout(slowMachine*2*time.Minute))

	ginkgo.It("says which version it is", func(ctx context.Context) {
		version, err := kcm.Version(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(version).To(gomega.MatchRegexp(`v1\.37\.0\+fresh\.[0-9]+`))
		info := page(ctx, kcm, "/metrics")
		gomega.Expect(info).To(gomega.MatchRegexp(`kubernetes_build_info{.*git_commit="[0-9a-f]{40}".*git_version="v1\.37\.0\+fresh\.[0-9]+"`))
	})

	ginkgo.It("has both gates on, on every page that tells of gates", func(ctx context.Context) {
		expectGates(ctx, kcm, true)
		gomega.Expect(page(ctx, kcm, "/flagz")).To(gomega.ContainSubstring("StaleControllerConsistency=true"))
	})

	ginkgo.It("brings a DaemonSet to every node", func(ctx context.Context) {
		runDaemonSet(ctx, client, "gates-on")
	}, ginkgo.SpecTimeout(slowMachine*time.Minute))

	ginkgo.It("records every write that a reconcile makes", func(ctx context.Context) {
		makeWork(ctx, client)
		everyWriteIsRecorded(ctx, cluster, kcm)
	}, ginkgo.SpecTimeout(slowMachine*4*time.Minute))

	ginkgo.It("comes back after it was killed", func(ctx context.Context) {
		killed := kcm.PID()
		gomega.Expect(kcm.Kill()).To(gomega.Succeed())
		gomega.Expect(syscall.Kill(killed, 0)).To(gomega.MatchError(syscall.ESRCH), "pid %d is gone", killed)
		// It has to wait for its predecessor's leadership to run out (15 s by default).
		gomega.Expect(kcm.Restart(ctx)).To(gomega.Succeed())
		gomega.Expect(kcm.PID()).NotTo(gomega.Equal(killed))
		runDaemonSet(ctx, client, "after-kill")
	}, ginkgo.SpecTimeout(slowMachine*2*time.Minute))

	ginkgo.It("runs with its gates off", func(ctx context.Context) {
		gomega.Expect(kcm.Restart(ctx, func(o *controlplane.ProcessOptions) {
			o.FeatureGates = map[string]bool{string(features.StaleControllerConsistency): false, string(features.MonitorInformerStaleness): false}
		})).To(gomega.Succeed())
		expectGates(ctx, kcm, false)
		runDaemonSet(ctx, client, "gates-off")
	}, ginkgo.SpecTimeout(slowMachine*2*time.Minute))

	ginkgo.It("has a rule for every write", func() {
		var log oracle.Log
		events, err := log.Read(cluster.APIServers()...)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(oracle.Writes(events)).NotTo(gomega.BeEmpty())
		gomega.Expect(oracle.Undeclared(oracle.Writes(events))).To(gomega.BeEmpty())
	})

	ginkgo.It("stops without leaving anything behind", func(ctx context.Context) {
		var pids []int
		for _, component := range cluster.Components(ctx) {
			gomega.Expect(component.State).To(gomega.Equal(controlplane.StateRunning), component.Name)
			pids = append(pids, component.PID)
		}
		gomega.Expect(cluster.Stop(ctx)).To(gomega.Succeed())
		for _, pid := range pids {
			gomega.Expect(syscall.Kill(pid, 0)).To(gomega.MatchError(syscall.ESRCH), "pid %d is gone", pid)
		}
		_, err := os.Stat(cluster.Dir())
		gomega.Expect(os.IsNotExist(err)).To(gomega.BeTrue(), "%s is gone", cluster.Dir())
	}, ginkgo.SpecTimeout(slowMachine*time.Minute))
})

func page(ctx context.Context, kcm *controlplane.KCM, path string) string {
	ginkgo.GinkgoHelper()
	body, err := kcm.Get(ctx, path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return string(body)
}

// expectGates reads from the running process which of this project's gates are on.
func expectGates(ctx context.Context, kcm *controlplane.KCM, on bool) {
	ginkgo.GinkgoHelper()
	value := map[bool]string{true: "1", false: "0"}[on]
	metrics := page(ctx, kcm, "/metrics")
	for _, gate := range []string{string(features.StaleControllerConsistency), string(features.MonitorInformerStaleness)} {
		line := fmt.Sprintf(`kubernetes_feature_enabled{name=%q,stage="BETA"} %s`, gate, value)
		gomega.Expect(strings.Contains(metrics, line+"\n")).To(gomega.BeTrue(), "/metrics has the line %s", line)
	}
}

// runDaemonSet creates a DaemonSet and waits until a pod of it is available on every node.
func runDaemonSet(ctx context.Context, client kubernetes.Interface, name string) {
	ginkgo.GinkgoHelper()
	labels := map[string]string{"app": name}
	sets := client.AppsV1().DaemonSets(metav1.NamespaceDefault)
	_, err := sets.Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
			},
		},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Eventually(ctx, func(ctx context.Context) (int32, error) {
		set, err := sets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		return set.Status.NumberAvailable, nil
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(gomega.BeEquivalentTo(smokeNodes))

	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	nodes := map[string]int{}
	for _, pod := range pods.Items {
		nodes[pod.Spec.NodeName]++
	}
	gomega.Expect(nodes).To(gomega.HaveLen(smokeNodes), "one pod on every node and no more: %v", nodes)
	gomega.Expect(pods.Items).To(gomega.HaveLen(smokeNodes))
}
