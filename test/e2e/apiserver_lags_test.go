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
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	resumedNodes = 50
	// remade pods are new to the first apiserver only.
	remade = 10
	// resumedFor is how long the client is on an apiserver that has yet to see what the client knows. Such a one
	// answers a consistent read after 3 s only, so that two probes of the monitor take a while.
	resumedFor = 40 * time.Second
)

// The client moves to an apiserver whose watch cache of pods stands still in the past, and resumes its watch of
// them from a version that this apiserver does not have yet. It must neither be led back into that past nor take
// the silence for news; a DaemonSet is created meanwhile. U0 publishes statuses of what it sees of its own pods
// while they come in.
var _ = describe(scenario{
	number: 16, title: "client resumes on an apiserver that lags behind the one before", label: long,
	hurts: rig.U0, rules: []string{oracle.RuleStatusBehindPods}, mutants: []without{{"own-writes", oracle.RuleSurplus}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: resumedNodes}, APIServers: 2}},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		second := r.Cluster.APIServers()[1]
		lagging := r.lagOfPods(func(arg string) error {
			return second.Restart(ctx, func(o *controlplane.ProcessOptions) { o.Args = append(o.Args, arg) })
		})
		known := create(ctx, r, workload.DaemonSet("known"))
		r.converges(ctx, "known, without fault", patience, r.daemonSetDone(known, resumedNodes))
		lagging.Hold()
		deleteOn(ctx, r, known, r.Cluster.Nodes().Names()[:remade])
		r.converges(ctx, "known, made again", patience, r.daemonSetDone(known, resumedNodes))
		r.told(ctx, truth.Pods)
		ahead, behind := r.Proxy.Progress(truth.Pods).Delivered.ResourceVersion, servedFromCache(ctx, second)
		r.figure("V pods: client at, apiserver at", "%s, %s", ahead, behind)
		if !freshness.Less(behind, ahead) {
			r.unproven = append(r.unproven, "the second apiserver does not lag behind what the client knows")
		}

		set := create(ctx, r, workload.DaemonSet("new"))
		gomega.Expect(r.Proxy.SwitchBackend(second.Name(), faultproxy.EndWatches)).To(gomega.Succeed())
		r.notLedBack(ctx, ahead, resumedFor)
		r.figure("pods made meanwhile", "%d", oracle.DigestOf(r.Truth, set).PodsCreated)
		lagging.Release()
		r.figure("L after", "%v", rounded(r.converges(ctx, "new", time.Minute, r.daemonSetDone(set, resumedNodes))))
		r.converges(ctx, "known", stepLimit, r.daemonSetDone(known, resumedNodes))
		r.digest("known", known, oracle.Digest{PodsCreated: resumedNodes + remade, PodsDeleted: remade, RevisionsCreated: 1})
		r.digest("new", set, oracle.Digest{PodsCreated: resumedNodes, RevisionsCreated: 1})
	},
})

// servedFromCache returns the resource version of an apiserver's watch cache of pods.
func servedFromCache(ctx context.Context, server *controlplane.APIServer) string {
	ginkgo.GinkgoHelper()
	client, err := kubernetes.NewForConfig(server.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return pods.ResourceVersion
}

// notLedBack watches for a while that the client's cache of pods does not go back behind a version, by what its
// watches were told and by the page, and that the page no longer says that this cache is complete, but says so of
// all others.
func (r *run) notLedBack(ctx context.Context, rv string, lasts time.Duration) {
	ginkgo.GinkgoHelper()
	began, alarms := time.Now(), 0.0
	if r.Arm == rig.P {
		alarms = otherAlarms(ctx, r)
	}
	lowest, noticed := rv, time.Duration(0)
	look := func(at string) {
		if at != "" && freshness.Less(at, lowest) {
			lowest = at
		}
	}
	for ; time.Since(began) < lasts && ctx.Err() == nil; time.Sleep(polling) {
		look(r.Proxy.Progress(truth.Pods).LastDelivered.ResourceVersion)
		if r.Arm != rig.P {
			continue
		}
		c, ok := cacheOf(readStalenessz(ctx, r), truth.Pods)
		gomega.Expect(ok).To(gomega.BeTrue(), "pods are on the page")
		look(c.StoreResourceVersion)
		if noticed == 0 && !complete(c.State) {
			noticed = time.Since(began)
		}
	}
	r.figure("noticed after, versions lowered by", "%v, %d", rounded(noticed), freshness.Distance(lowest, rv))
	if lowest != rv {
		r.violate(oracle.Violation{Oracle: "S3", Rule: "resource version lowered", Time: time.Now(), Detail: fmt.Sprintf("from %s to %s", rv, lowest)})
	}
	if r.Arm != rig.P {
		return
	}
	if noticed == 0 {
		r.violate(oracle.Violation{Oracle: "M", Rule: "lag not noticed", Time: time.Now(), Detail: fmt.Sprintf("within %v", lasts)})
	}
	if alarms = otherAlarms(ctx, r) - alarms; alarms > 0 {
		r.violate(oracle.Violation{Oracle: "M", Rule: "false alarm", Time: time.Now(), Detail: fmt.Sprintf("%.0f changes of state of other caches", alarms)})
	}
}

// otherAlarms counts the alarms about caches of other resources than pods.
func otherAlarms(ctx context.Context, r *run) float64 {
	ginkgo.GinkgoHelper()
	return falseAlarms(ctx, r) - falseAlarms(ctx, r, `resource="pods"`)
}
