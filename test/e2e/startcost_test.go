// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

const (
	startNodes = 20
	// startCounted is for how long after the start of leadership requests are counted.
	startCounted = 30 * time.Second
	// startBlackout is how long no byte passes from the start of leadership on.
	startBlackout = 20 * time.Second
	// startBound is what the first reconcile may come later than stock's.
	startBound = time.Second
)

// leaseOutlastsBlackout has a KCM lead on while it is cut off.
var leaseOutlastsBlackout = []string{"--leader-elect-lease-duration=400s", "--leader-elect-renew-deadline=390s", "--leader-elect-retry-period=1s"}

// When a KCM that begins to lead first reconciles a Service, which none of its controllers' own protections holds up, and how many
// requests it makes: with everything healthy, beside a custom resource that cannot be listed, and cut off for 20 s. BENCH_ROUNDS is how
// often each arm takes its turn.
var _ = ginkgo.Describe("A start", ginkgo.Serial, ginkgo.Label(long, "bench:start"), gates.StaleControllerConsistency(), func() {
	ginkgo.It("is not delayed while the caches are fresh", func(ctx context.Context) {
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: startNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture}
		ginkgo.DeferCleanup(func(ctx context.Context) { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) })
		r.serveWeb(ctx)
		objects := r.define(ctx)
		gomega.Expect(r.KCM.Stop()).To(gomega.Succeed())
		turns := 1
		if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil {
			turns = n
		}
		first := map[string]time.Duration{}
		for _, fault := range []string{"healthy", "cut off", "broken definition"} {
			if fault == "broken definition" {
				r.breakConversion(ctx, objects)
				r.eventually(ctx, "lists to be answered 429", func() (bool, error) { return apierrors.IsTooManyRequests(r.listGadgets(ctx)), nil })
			}
			for turn := range turns {
				for _, arm := range []controlplane.Arm{controlplane.ArmU1, controlplane.ArmP} {
					s := r.start(ctx, fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(fault, " ", "-"), strings.ToLower(string(arm)), turn), arm, fault == "cut off")
					fmt.Printf("\n%s, %s: first reconcile of a Service %v after leading; requests in %v: %d, of them proofs %d\n", fault, arm, rounded(s.first), startCounted, s.requests, s.proofs)
					first[fault+string(arm)] += s.first / time.Duration(turns)
				}
			}
		}
		for _, fault := range []string{"healthy", "cut off", "broken definition"} {
			gomega.Expect(first[fault+string(controlplane.ArmP)]).To(gomega.BeNumerically("<=", first[fault+string(controlplane.ArmU1)]+startBound), fault)
		}
	}, ginkgo.SpecTimeout(30*time.Minute))
})

// started is what a start was like.
type started struct {
	first            time.Duration
	requests, proofs int
}

// start starts a KCM that has a Service to reconcile, and ends it.
func (r *run) start(ctx context.Context, name string, arm controlplane.Arm, cutOff bool) started {
	ginkgo.GinkgoHelper()
	slices := r.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	gomega.Expect(slices.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})).To(gomega.Succeed())
	lease := r.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	err := lease.Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})
	gomega.Expect(err).To(gomega.Or(gomega.Succeed(), gomega.MatchError(apierrors.IsNotFound, "not found")))

	began := time.Now()
	kcm, err := r.Cluster.StartKCM(ctx, controlplane.KCMOptions{Arm: arm, Name: name, Server: r.Proxy.URL(), NoWaitForLeader: true,
		ProcessOptions: controlplane.ProcessOptions{Args: leaseOutlastsBlackout}})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(kcm)
	defer func() { gomega.Expect(kcm.Kill()).To(gomega.Succeed()) }()
	r.eventually(ctx, "the KCM to lead", func() (bool, error) {
		l, err := lease.Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		return err == nil && l.Spec.HolderIdentity != nil, nil
	})
	if cutOff {
		hole := r.Proxy.BlackHole()
		select {
		case <-time.After(startBlackout):
		case <-ctx.Done():
		}
		hole.Clear()
	}
	r.eventually(ctx, "the Service to have its pods", func() (bool, error) {
		n, err := r.endpoints(ctx)
		return n == webPods, err
	})
	var leads, served time.Time
	r.eventually(ctx, "the audit log to have all", func() (bool, error) {
		events, err := r.Audit()
		for i := range events {
			e := &events[i]
			switch {
			case !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") || e.RequestReceivedTimestamp.Before(began) || e.Verb != "create":
			case e.ObjectRef.Resource == "leases" && leads.IsZero():
				leads = e.StageTimestamp
			case e.ObjectRef.Resource == "endpointslices" && served.IsZero():
				served = e.RequestReceivedTimestamp
			}
		}
		return !leads.IsZero() && !served.IsZero() && time.Since(leads) > startCounted+time.Second, err
	})
	out := started{first: served.Sub(leads)}
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		e := &events[i]
		if !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") || e.RequestReceivedTimestamp.Before(leads) || e.RequestReceivedTimestamp.After(leads.Add(startCounted)) ||
			(e.Verb == "watch") != (e.Stage == "ResponseStarted") {
			continue
		}
		out.requests++
		if strings.HasSuffix(e.UserAgent, " freshness") {
			out.proofs++
		}
	}
	return out
}
