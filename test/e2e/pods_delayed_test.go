// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const podDelayNodes = 50

// expectationLife is how long upstream's controllers believe in their expectations.
const expectationLife = 5 * time.Minute

// Pod events come late while a DaemonSet is created. Stock upstream makes no second pod within five minutes:
// its expectations see to that, even with its staleness gates off. What U0 gets wrong is the status: while its
// own pods come in one by one it reconciles at each of them and publishes how many it has seen of what it
// created itself. U1 waits and is not hurt.
var (
	_ = describe(podsDelayed(ordinary, time.Second, 10*time.Second))
	_ = describe(podsDelayed(long, time.Minute))
)

// The same for longer than expectations last, and the DaemonSet is edited then. U0 believes that no node has a
// pod and makes one more for each. U1 and P wait.
//
//conformance:kep-5647 Staleness Mitigation in Controllers: an object is not reconciled until the cache has its last writes
var _ = describe(scenario{
	number: 1, title: "pod events held for longer than expectations last", label: long,
	incidents: []string{"129795"},
	hurts:     rig.U0, rules: []string{oracle.RuleSurplus},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: podDelayNodes}}},
	timeout: 2 * expectationLife,
	run: func(ctx context.Context, r *run) {
		const name = "held"
		fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		ds := create(ctx, r, workload.DaemonSet(name))
		lasts := expectationLife + 10*time.Second
		gomega.Expect(rig.Wait(ctx, 2*expectationLife, "the expectations to run out", func() (bool, error) {
			return time.Since(fault.Stats().Since) >= lasts, nil
		})).To(gomega.Succeed())
		patchSpec(ctx, r, name, `{"spec":{"revisionHistoryLimit":5}}`)
		// An arm that makes pods now has a moment for it.
		_ = rig.Wait(ctx, heldFor, "pods to be made again", func() (bool, error) {
			return oracle.DigestOf(r.Truth, ds).PodsCreated >= 2*podDelayNodes, nil
		})
		r.proves(fault, podDelayNodes, lasts)
		fault.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, name, stepLimit, r.daemonSetDone(ds, podDelayNodes))))
		r.digest(name, ds, oracle.Digest{PodsCreated: podDelayNodes, RevisionsCreated: 1})
	},
})

func podsDelayed(label string, delays ...time.Duration) scenario {
	return scenario{
		number: 1, title: fmt.Sprintf("pod events delayed by %v, DaemonSet create", delays), label: label,
		hurts: rig.U0, rules: []string{oracle.RuleStatusBehindPods}, mutants: ifOrdinary(label, without{"own-writes", oracle.RuleSurplus}),
		options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: podDelayNodes}}},
		timeout: 4*time.Minute + 2*delays[len(delays)-1],
		run: func(ctx context.Context, r *run) {
			for _, delay := range delays {
				createUnderDelay(ctx, r, delay)
			}
		},
	}
}

func createUnderDelay(ctx context.Context, r *run, delay time.Duration) {
	fault := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: delay})
	name := fmt.Sprintf("delayed-%.0fs", delay.Seconds())
	ds := create(ctx, r, workload.DaemonSet(name))
	began := time.Now()
	r.eventually(ctx, "a pod for every node", func() (bool, error) {
		return oracle.DigestOf(r.Truth, ds).PodsCreated >= podDelayNodes, nil
	})
	r.figure(name+" created after", "%.1fs", time.Since(began).Seconds())
	// The fault stays; it heals by itself when all events have come.
	r.figure(name+" L after", "%.1fs", r.converges(ctx, name, 4*delay+stepLimit, r.daemonSetDone(ds, podDelayNodes)).Seconds())
	r.proves(fault, podDelayNodes, delay)
	fault.Clear()
	r.digest(name, ds, oracle.Digest{PodsCreated: podDelayNodes, RevisionsCreated: 1})
}

// create creates a DaemonSet and returns its UID.
func create(ctx context.Context, r *run, ds *appsv1.DaemonSet) types.UID {
	made, err := r.Client.AppsV1().DaemonSets(ds.Namespace).Create(ctx, ds, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return made.UID
}
