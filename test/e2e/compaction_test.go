// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const compactedNodes = 30

// While the pod watch is held, the controller adopts pods, those and others are deleted, and etcd is
// compacted past what the cache has. The client is moved to an apiserver that was started since, so it is
// really told 410 and lists anew. What the relist does not tell of (see scenario 2) hurts U1 by its backoff.
// U0, which scenario 2 leaves stuck, is helped here: the DaemonSets are listed anew too, and each is reconciled
// for that.
//
//conformance:api-concepts Efficient detection of changes: client-go's Reflector does so by itself
var _ = describe(scenario{
	number: 19, title: "compaction and 410 during a hold of the pod watch", label: long,
	incidents: []string{"etcd-20573"},
	timed:     true, hurts: rig.U1, rules: []string{ruleWake},
	options: rig.Options{
		KCMArgs: quickClient,
		Cluster: controlplane.Options{
			Nodes:      controlplane.NodeOptions{Count: compactedNodes},
			APIServers: 2,
			// Each time to where etcd was the time before.
			APIServer: controlplane.ProcessOptions{Args: []string{"--etcd-compaction-interval=2s"}},
		},
	},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const churned = "churned"
		ds := create(ctx, r, workload.DaemonSet(churned, workload.OnDelete))
		r.eventually(ctx, "the DaemonSet to be complete", done(r.daemonSetDone(ds, compactedNodes)))
		makeOrphans(ctx, r)

		var moved atomic.Bool
		held := informersOf(truth.Pods)
		informers := held.Match
		// Also those that are taken up in place of a stalled one, but not what comes after the move.
		held.Match = func(req faultproxy.Request) bool { return informers(req) && !moved.Load() }
		hold := r.inject(held, faultproxy.Hold{})
		cacheRV := r.Proxy.Progress(truth.Pods).Delivered.ResourceVersion
		owners := adoptAndDelete(ctx, r)
		deleteOn(ctx, r, ds, r.Cluster.Nodes().Names()[heldOwners:2*heldOwners])
		stayHeld(ctx, hold)
		second := r.Cluster.APIServers()[1]
		gomega.Expect(second.Restart(ctx)).To(gomega.Succeed())
		waitCompacted(ctx, r, second, cacheRV)

		edited := time.Now()
		editAll(ctx, r, owners)
		moving := time.Now()
		r.proves(hold, 2*heldOwners, heldFor)
		// The relist comes through, what follows it has to wait until the wake has been measured.
		after := r.inject(faultproxy.Target{
			Resource: truth.Pods, Match: func(r faultproxy.Request) bool { return r.SendInitialEvents },
		}, faultproxy.Hold{})
		moved.Store(true)
		gomega.Expect(r.Proxy.SwitchBackend(second.Name(), faultproxy.EndWatches)).To(gomega.Succeed())
		caughtUp := r.caughtUp(ctx, truth.Pods, r.lastRV(truth.Pods, isDeleted), stepLimit)
		r.relisted(moving)
		r.wakes(ctx, "wake", edited, caughtUp, owners)
		after.Clear()
		hold.Clear()
		r.endsWithOnePod(ctx, owners, oracle.Digest{PodsCreated: 1, PodsDeleted: 1, RevisionsCreated: 2})
		r.converges(ctx, churned, stepLimit, r.daemonSetDone(ds, compactedNodes))
		r.digest(churned, ds, oracle.Digest{PodsCreated: compactedNodes + heldOwners, PodsDeleted: heldOwners, RevisionsCreated: 1})
	},
})

// waitCompacted proves that etcd no longer has what the cache shows.
func waitCompacted(ctx context.Context, r *run, server *controlplane.APIServer, rv string) {
	ginkgo.GinkgoHelper()
	client, err := kubernetes.NewForConfig(server.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "compaction past "+rv, func() (bool, error) {
		_, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1,
		})
		if apierrors.IsResourceExpired(err) {
			return true, nil
		}
		return false, err
	})
}

// relisted is V for the 410: since then the pod watch was resumed, and the cache filled anew.
func (r *run) relisted(since time.Time) {
	ginkgo.GinkgoHelper()
	resumed, anew := 0, 0
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		e := &events[i]
		if !isSharedInformer(e, truth.Pods) || e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		switch {
		case fillsAnew(e):
			anew++
		case e.Verb == "watch":
			resumed++
		}
	}
	r.figure("V resumed, then relisted", "%d, %d", resumed, anew)
	if resumed == 0 || anew == 0 {
		r.unproven = append(r.unproven, "the pod watch was not resumed, refused and relisted")
	}
}
