// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	opaqueNodes = 20
	// opaqueHeld is how long ours has to publish a status while its cache ends at an opaque version. Stock publishes it, and has as long as it takes.
	opaqueHeld = 5 * time.Second
	// otherPods have versions that are no numbers, and the cache is at one of them when the DaemonSet is made.
	otherPods = 5
)

// Some pods' resource versions are no numbers, as an aggregated API's may be, while those of the DaemonSet's
// own pods are. KEP-5504 knows no order between the two. Upstream takes what it cannot compare for "seen", so
// one opaque version in the cache switches its protection off, unseen (gap 6).
//
//conformance:kep-5504 Story 3: who meets versions that cannot be compared falls back to something dearer
var _ = describe(scenario{
	number: 24, title: "resource versions of pods partly opaque", label: ordinary,
	hurts: rig.U1, rules: []string{oracle.RuleStatusBehindPods}, mutants: []without{{"opaque", oracle.RuleSurplus}}, gaps: []int{6},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: opaqueNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		opaque := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.OpaqueRVs{
			Match: func(e faultproxy.Event) bool { return strings.HasPrefix(e.Name, otherPrefix) },
		})
		touchOpaquePods(ctx, r)
		r.told(ctx, truth.Pods)
		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{Lists: true})
		set := create(ctx, r, workload.DaemonSet("numeric"))
		r.eventually(ctx, "a pod for every node", func() (bool, error) {
			return oracle.DigestOf(r.Truth, set).PodsCreated >= opaqueNodes, nil
		})
		// The taint has the DaemonSet reconciled again, on a cache that does not know its pods yet, and changes its status.
		node := r.Cluster.Nodes().Names()[0]
		r.taint(ctx, node, corev1.Taint{Key: "e2e", Effect: corev1.TaintEffectNoSchedule})
		// An arm that publishes a status now has a moment for it.
		moment := opaqueHeld
		if r.Arm != rig.P {
			moment = patience
		}
		_ = rig.Wait(ctx, moment, "a status", func() (bool, error) {
			ds, err := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Get(ctx, "numeric", metav1.GetOptions{})
			return err == nil && ds.Status.DesiredNumberScheduled == opaqueNodes-1, err
		})
		r.taint(ctx, node)
		r.proves(hold, opaqueNodes, 0)
		hold.Clear()
		r.figure("L after", "%.1fs", r.converges(ctx, "numeric", stepLimit, r.daemonSetDone(set, opaqueNodes)).Seconds())
		r.digest("numeric", set, oracle.Digest{PodsCreated: opaqueNodes, RevisionsCreated: 1})
		r.opaque(ctx, opaque)
	},
})

// All pods' versions are opaque. Nothing can be compared then: both U1 and P let the DaemonSet go on as
// upstream without its gates does, whose statuses trail its writes now and then. P says so on /metrics;
// nothing is hurt in the end, only unprotected.
//
//conformance:kep-5504 Risks and Mitigations: an object whose version cannot be compared does no harm
var _ = describe(scenario{
	number: 24, title: "resource versions of pods all opaque", label: ordinary, allows: []string{oracle.RuleStatusBehindPods}, mutants: []without{{"metered", ruleMetered}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: opaqueNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		opaque := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.OpaqueRVs{})
		set := create(ctx, r, workload.DaemonSet("opaque"))
		r.figure("L after", "%.1fs", r.converges(ctx, "opaque", stepLimit, r.daemonSetDone(set, opaqueNodes)).Seconds())
		_, err := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Patch(ctx, "opaque", types.MergePatchType,
			[]byte(`{"spec":{"template":{"metadata":{"annotations":{"round":"2"}}},"updateStrategy":{"rollingUpdate":{"maxUnavailable":5}}}}`), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the rollout to begin", func() (bool, error) { return oracle.DigestOf(r.Truth, set).PodsDeleted > 0, nil })
		r.figure("rolled out after", "%.1fs", r.converges(ctx, "rolled out", time.Minute, r.daemonSetDone(set, opaqueNodes)).Seconds())
		r.opaque(ctx, opaque)
		// Clearing leaves opaque versions in the cache; numbers follow.
		opaque.Clear()
		numeric := create(ctx, r, workload.DaemonSet("numeric-again"))
		r.converges(ctx, "numeric-again", stepLimit, r.daemonSetDone(numeric, opaqueNodes))
	},
})

const (
	otherPrefix = "opaque-"
	ruleMetered = "opaque versions not metered"
	// ruleFalseRewind: P said that resource versions went backward, and had all informers relist, though nothing was restored.
	ruleFalseRewind = "rewind without a restore"
)

// touchOpaquePods makes pods of nobody's and changes them in turn, opaqueNodes times in all.
func touchOpaquePods(ctx context.Context, r *run) {
	nodes := r.Cluster.Nodes().Names()
	pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for i := range otherPods {
		_, err := pods.Create(ctx, workload.Orphan(fmt.Sprint(otherPrefix, i), "nobody", nodes[i]), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	for i := range opaqueNodes {
		_, err := pods.Patch(ctx, fmt.Sprint(otherPrefix, i%otherPods), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, i), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// opaque is V of scenario 24, and asks P's metrics.
func (r *run) opaque(ctx context.Context, fault *faultproxy.Fault) {
	s := fault.Stats()
	r.figure("V OpaqueRVs pods", "%d frames, %d answers", s.Rewritten.Frames, s.Requests)
	if s.Rewritten.Events[watch.Modified] < opaqueNodes {
		r.unproven = append(r.unproven, fmt.Sprintf("%d events were made opaque", s.Rewritten.Frames))
	}
	if r.Arm != rig.P {
		return
	}
	metered := series(ctx, r, "stale_controller_incomparable_resource_versions_total", `resource="pods"`)
	r.figure("incomparable (metric)", "%v", metered)
	for _, origin := range []string{"Store", "Write", "Fence", "Delivery"} {
		if n := series(ctx, r, "stale_controller_incomparable_resource_versions_total", `resource="pods"`, fmt.Sprintf("origin=%q", origin)); n > 0 {
			r.figure("incomparable, "+origin, "%v", n)
		}
	}
	r.figure("waits", "%v", series(ctx, r, "stale_controller_waits_total", `controller="daemonset"`))
	rewinds := series(ctx, r, "stale_controller_rewinds_total")
	if rewinds > 0 {
		r.violate(oracle.Violation{Oracle: "S3", Rule: ruleFalseRewind, Object: "/metrics", Time: time.Now(), Detail: fmt.Sprintf("stale_controller_rewinds_total is %v", rewinds)})
	}
	r.figure("rewinds, dropped records", "%v, %v", rewinds, series(ctx, r, "stale_controller_dropped_records_total"))
	if metered == 0 {
		r.violate(oracle.Violation{Oracle: "S3", Rule: ruleMetered, Object: "/metrics", Time: time.Now(), Detail: "stale_controller_incomparable_resource_versions_total is 0"})
	}
}
