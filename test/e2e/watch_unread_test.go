// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// pressedNodes pods, of several events each, of which each has the bulk: a few events fill the window of a stream, and the rest the apiserver's buffers for a
	// watcher. These count events: with 50 nodes too few were left for them in both runs of a day, and with a quarter of the bulk in most.
	pressedNodes = 100
	bulk         = 64 << 10
	// pressedFor is how long nobody reads, which is time for the apiserver to give the watcher up, and for
	// the monitor to have the watch taken up anew.
	pressedFor = 30 * time.Second
)

// Nobody reads the watches of pods, until the apiserver, whose buffers are full, gives the watchers up. What was
// under way arrives when they are read again, then the streams end. The watches must go on from where they were:
// an informer that lists anew instead makes the apiserver, which is slow already, slower.
var _ = describe(scenario{
	number: 12, title: "back-pressure on pod watches until the apiserver closes them", label: long,
	hurts: rig.U0, rules: []string{oracle.RuleStatusBehindPods},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: pressedNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		before := terminatedWatchers(ctx, r, "pods")
		fault := r.inject(informersOf(truth.Pods), faultproxy.StopReading{})
		began := fault.Stats().Since
		set := create(ctx, r, workload.DaemonSet("pressed", func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Annotations = map[string]string{"example.com/bulk": strings.Repeat("x", bulk)}
		}))
		r.eventually(ctx, "a pod for every node", func() (bool, error) {
			return oracle.DigestOf(r.Truth, set).PodsCreated >= pressedNodes, nil
		})
		r.eventually(ctx, "the apiserver to give the watcher up", func() (bool, error) {
			return terminatedWatchers(ctx, r, "pods") > before, nil
		})
		r.figure("V watchers given up", "%.0f, after %v", terminatedWatchers(ctx, r, "pods")-before, rounded(time.Since(began)))
		r.passes(ctx, "the fault to last", began, pressedFor)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, "pressed", stepLimit, r.daemonSetDone(set, pressedNodes))))
		r.digest("pressed", set, oracle.Digest{PodsCreated: pressedNodes, RevisionsCreated: 1})
		r.noRelists(began)
	},
})

// terminatedWatchers is how many watchers of a resource the apiserver has given up because they did not read.
func terminatedWatchers(ctx context.Context, r *run, resource string) float64 {
	ginkgo.GinkgoHelper()
	body, err := r.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return sumOf(string(body), "apiserver_terminated_watchers_total", `group=""`, fmt.Sprintf("resource=%q", resource))
}

// noRelists is the oracle of a relist storm: no informer has been filled anew since then.
func (r *run) noRelists(since time.Time) {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	watches, lists := 0, map[string]int{}
	for i := range events {
		e := &events[i]
		if !strings.HasPrefix(e.UserAgent, "kube-controller-manager") || !strings.HasSuffix(e.UserAgent, "-informers") || e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		switch {
		case fillsAnew(e):
			lists[e.ObjectRef.Resource]++
		case e.Verb == "watch":
			watches++
		}
	}
	r.figure("watches resumed, lists", "%d, %v", watches, lists)
	for resource, n := range lists {
		r.violate(oracle.Violation{Oracle: "L", Rule: "relist", Object: resource, Time: since, Detail: fmt.Sprintf("relisted %d times", n)})
	}
}
