// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

const (
	// definitionsVariable is how many definitions there are besides, turnVariable for how long reads are counted.
	definitionsVariable, turnVariable = "DEFINITIONS", "TURN"
	// readsBesides is by how many reads a minute two runs may differ, besides the probes.
	readsBesides = 20
)

// What a KCM asks the apiserver in a cluster with many definitions in which nothing happens, and what that costs both:
// stock, Fresh KCM, and Fresh KCM without the monitor, each a new process on the same cluster.
var _ = ginkgo.Describe("Reads of a KCM beside many definitions", ginkgo.Serial, ginkgo.Label(long, "probe-cost"), gates.MonitorInformerStaleness(), func() {
	ginkgo.It("are stock's and 2 a second", func(ctx context.Context) {
		definitions, turn := 150, time.Minute
		if n, err := strconv.Atoi(os.Getenv(definitionsVariable)); err == nil {
			definitions = n
		}
		if d, err := time.ParseDuration(os.Getenv(turnVariable)); err == nil {
			turn = d
		}
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: smokeNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture}
		ginkgo.DeferCleanup(func(ctx context.Context) { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) })
		gomega.Expect(r.KCM.Stop()).To(gomega.Succeed())
		r.defineMany(ctx, definitions)
		stock := r.readsOf(ctx, "stock", controlplane.ArmU1, false, definitions, turn)
		without := r.readsOf(ctx, "without", controlplane.ArmP, false, definitions, turn)
		with := r.readsOf(ctx, "with", controlplane.ArmP, true, definitions, turn)
		fmt.Printf("\n%d definitions, a minute: reads of stock %s; without the monitor %s; with it %s\n", definitions, stock, without, with)
		gomega.Expect(without.reads).To(gomega.BeNumerically("<=", stock.reads+readsBesides), "reads a minute without the monitor")
		gomega.Expect(with.reads).To(gomega.BeNumerically("<=", stock.reads+60*probesPerSecond+readsBesides), "reads a minute with the monitor")
	}, ginkgo.SpecTimeout(30*time.Minute))
})

// spent is what a minute of a KCM has cost.
type spent struct {
	reads, audited float64
	// kcm and apiserver are seconds of CPU time.
	kcm, apiserver float64
}

// String implements fmt.Stringer.
func (s spent) String() string {
	return fmt.Sprintf("%.0f reads, %.0f audit events, CPU of KCM %.2f s and of apiserver %.2f s", s.reads, s.audited, s.kcm, s.apiserver)
}

// readsOf starts a KCM and returns what it costs once it has settled.
func (r *run) readsOf(ctx context.Context, name string, arm controlplane.Arm, monitor bool, definitions int, turn time.Duration) spent {
	ginkgo.GinkgoHelper()
	options := controlplane.KCMOptions{Arm: arm, Name: name}
	if arm == controlplane.ArmP {
		options.FeatureGates = map[string]bool{string(features.MonitorInformerStaleness): monitor}
	}
	kcm, err := r.Cluster.StartKCM(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(kcm)
	defer func() { gomega.Expect(kcm.Stop()).To(gomega.Succeed()) }()
	r.nodesCounted(ctx, smokeNodes)
	if monitor {
		gomega.Expect(rig.Wait(ctx, patience, "the page to count all definitions", func() (bool, error) {
			return readStalenessz(ctx, r).CachesTotal > definitions+50, nil
		})).To(gomega.Succeed())
	}
	time.Sleep(time.Minute) // The garbage collector and quota list what is there every 30 s.
	kcmBefore, serverBefore, began := cpuSeconds(ctx, r), r.serverCPU(ctx), time.Now()
	time.Sleep(turn)
	minutes := time.Since(began).Minutes()
	out := spent{kcm: (cpuSeconds(ctx, r) - kcmBefore) / minutes, apiserver: (r.serverCPU(ctx) - serverBefore) / minutes}
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		e := &events[i]
		if !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") || e.RequestReceivedTimestamp.Before(began) || e.RequestReceivedTimestamp.After(began.Add(turn)) {
			continue
		}
		out.audited += 1 / minutes
		if e.Verb == "watch" && e.Stage == "ResponseStarted" || (e.Verb == "get" || e.Verb == "list") && e.Stage == "ResponseComplete" {
			out.reads += 1 / minutes
		}
	}
	return out
}

func (r *run) serverCPU(ctx context.Context) float64 {
	ginkgo.GinkgoHelper()
	raw, err := r.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return sumOf(string(raw), "process_cpu_seconds_total")
}

// defineMany makes so many definitions, without objects, and waits until they are served.
func (r *run) defineMany(ctx context.Context, n int) {
	ginkgo.GinkgoHelper()
	config := r.Cluster.AdminConfig()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	const group, atOnce = "many.example.com", 8
	var wg sync.WaitGroup
	for first := range atOnce {
		wg.Go(func() {
			defer ginkgo.GinkgoRecover()
			for i := first; i < n; i += atOnce {
				singular := fmt.Sprintf("thing%d", i)
				_, err := definitions.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
					"metadata": map[string]any{"name": singular + "s." + group},
					"spec": map[string]any{
						"group": group, "scope": "Namespaced",
						"names": map[string]any{"plural": singular + "s", "singular": singular, "kind": fmt.Sprintf("Thing%d", i)},
						"versions": []any{map[string]any{
							"name": "v1", "served": true, "storage": true,
							"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
						}},
					},
				}}, metav1.CreateOptions{})
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
			}
		})
	}
	wg.Wait()
	if n == 0 {
		return
	}
	gomega.Expect(rig.Wait(ctx, 5*time.Minute, "all definitions to be served", func() (bool, error) {
		list, err := r.Client.Discovery().ServerResourcesForGroupVersion(group + "/v1")
		time.Sleep(time.Second)
		return err == nil && len(list.APIResources) >= n, nil
	})).To(gomega.Succeed())
}
