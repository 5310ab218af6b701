// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	refusingNodes = 3
	// eventsLast is for how long pods change while the status is refused, every eventsEvery.
	eventsLast, eventsEvery = 8 * time.Second, 250 * time.Millisecond
	// enoughRefusals are so many that a queue waits for a quarter of an hour after the last: two for each try.
	enoughRefusals = 40
	// longDelay is longer than a queue's delay of 82 s. The next longer one is 164 s.
	longDelay = 85 * time.Second
	// comesBack is after how long, besides the time for which its status was refused, an owner is tried again at the latest, and what a slow machine adds.
	comesBack = 10*time.Second + 15*time.Second

	ruleStatusLeft = "status wrong long after it can be written"
)

// A policy refuses the status of a DaemonSet that is rolled, and its pods change. Each event has the status tried once more, and each try doubles the delay of the queue: on stock the
// status is right up to a quarter of an hour after the policy is gone.
var _ = describe(scenario{
	number: 63, title: "the status of a DaemonSet refused while its pods change", label: ordinary,
	hurts: rig.U1, rules: []string{ruleStatusLeft}, mutants: []without{{"overdue", ruleStatusLeft}}, gaps: []int{27}, idle: true,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: refusingNodes}}},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		const name = "refused"
		ds := create(ctx, r, workload.DaemonSet(name))
		done := r.daemonSetDone(ds, refusingNodes)
		r.converges(ctx, "before the rolling update", patience, done)

		remove, err := r.denies(ctx, "statuses", metav1.LabelSelector{}, admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets/status"}},
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "the status to be refused", func() (bool, error) { return r.statusRefused(ctx, name) })
		refused := time.Now()
		setImage(ctx, r, name, nextImage)
		for n := 0; time.Since(refused) < eventsLast || n < enoughRefusals; n, _ = r.refusals(name) {
			r.turnUnready(ctx, ds)
			r.passes(ctx, "the next event", time.Now(), eventsEvery)
			r.turnReady(ctx, ds)
			r.passes(ctx, "the next event", time.Now(), eventsEvery)
		}
		quiet, last := time.Now(), time.Time{}
		// A queue keeps the earliest of several times: there may be one left that was short. The one after that is not.
		_ = rig.Wait(ctx, longDelay, "the next try", func() (bool, error) {
			_, last = r.refusals(name)
			return last.After(quiet), nil
		})
		gomega.Expect(remove(ctx)).To(gomega.Succeed())
		r.eventually(ctx, "the status to be accepted", func() (bool, error) {
			is, err := r.statusRefused(ctx, name)
			return !is, err
		})
		accepted := time.Now()
		n, last := r.refusals(name)
		r.figure("V statuses refused", "%d times in %v", n, rounded(accepted.Sub(refused)))
		due := last.Add(last.Sub(refused) + comesBack)
		if err := rig.Wait(ctx, max(time.Until(due), time.Second), "the status", func() (bool, error) { return done() == nil, nil }); err != nil {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleStatusLeft, Object: name, Time: time.Now(), Detail: fmt.Sprintf("%v after it was accepted again: %v", rounded(time.Since(accepted)), done())})
			patchSpec(ctx, r, name, `{"spec":{"revisionHistoryLimit":5}}`) // Anything that has it looked at.
		} else {
			r.figure("status right after it was accepted again", "%v", rounded(time.Since(accepted)))
		}
		r.converges(ctx, "after the rolling update", stepLimit, done)
	},
})

// turnReady has all of a DaemonSet's pods turn ready, as their kubelets do, so that no more events come.
func (r *run) turnReady(ctx context.Context, set types.UID) {
	r.eventually(ctx, "all pods to be ready", func() (bool, error) {
		ready := 0
		for _, pod := range r.podsOf(set) {
			if podutil.IsPodReady(pod) {
				ready++
			} else if err := r.setReady(ctx, pod, corev1.ConditionTrue); err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return ready == refusingNodes, nil
	})
}

// statusRefused reports whether the server would refuse the status of a DaemonSet.
func (r *run) statusRefused(ctx context.Context, name string) (bool, error) {
	_, err := r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"numberMisscheduled":7}}`),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return true, nil
	}
	return false, err
}

// refusals is how many times the status of a DaemonSet was refused to its controller, and when it was last.
func (r *run) refusals(name string) (n int, last time.Time) {
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, e := range events {
		if e.ObjectRef.Resource == truth.DaemonSets.Resource && e.ObjectRef.Name == name && e.ObjectRef.Subresource == "status" && e.ServiceAccount() == oracle.DaemonSetController &&
			e.ResponseStatus.Code >= http.StatusBadRequest && e.ResponseStatus.Code != http.StatusConflict {
			n++
			if at := e.RequestReceivedTimestamp; at.After(last) {
				last = at
			}
		}
	}
	return n, last
}
