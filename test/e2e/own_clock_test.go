// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/skew"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	skewedNodes = 50
	clockOff    = 5 * time.Minute
	// lateKubelet is how long a new node takes until it reports for the first time; it has a minute by default.
	lateKubelet = 20 * time.Second
)

// The KCM's clock is off by 5 min. A node dies, and the news of leases stays away past the grace period: nobody
// else may be marked, and the dead one must be. With the clock ahead every stock arm takes a new node, which has not
// reported yet, for one that has not in five minutes; with the clock behind it is U0 that is hurt, as without.
var (
	_ = describe(skewed("ahead", clockOff, rig.U1, "first-probe"))
	_ = describe(skewed("behind", -clockOff, rig.U0, "lease-proof"))
)

func skewed(how string, ahead time.Duration, hurts rig.Arm, mutant string) scenario {
	return scenario{
		number: 25, title: "KCM clock 5 min " + how, label: long,
		hurts: hurts, rules: []string{oracle.RuleLiveMarked}, mutants: []without{{mutant, oracle.RuleLiveMarked}},
		options: shortTiming.rig(controlplane.NodeOptions{Count: skewedNodes}, append(quickElection, "--kube-api-content-type=application/json")...),
		idle:    true,
		timeout: 6 * time.Minute,
		run: func(ctx context.Context, r *run) {
			lasts := shortTiming.overGrace()
			clock := r.skewKCM(ctx, ahead)
			r.nodesKnown(ctx)
			nodes := r.Cluster.Nodes().Names()
			r.kill(ctx, shortTiming, nodes[0])

			joined := r.joinSilent(ctx, r.Client, "late-kubelet")
			hold := r.inject(leases, faultproxy.Hold{})
			began := hold.Stats().Since
			r.passes(ctx, "its kubelet to start", began, lateKubelet)
			gomega.Expect(r.Cluster.Nodes().Revive(ctx, joined)).To(gomega.Succeed())
			r.passes(ctx, "the fault to last", began, lasts)
			r.proves(hold, skewedNodes, lasts)
			hold.Clear()
			cleared := time.Now()
			r.lived(shortTiming, began, cleared, r.living()...)
			r.marked(ctx, "the dead", shortTiming, time.Time{}, nodes[0])
			r.passes(ctx, "the passes after it", cleared, 2*passPeriod)
			r.budgeted("clock off", began, time.Now())
			times, pieces := clock.Shifted()
			r.figure("V times told otherwise, in", "%d, %d answers and events", times, pieces)
			if times < skewedNodes {
				r.unproven = append(r.unproven, fmt.Sprintf("the KCM was told %d times otherwise", times))
			}
			r.converges(ctx, "the living Ready", 2*stepLimit, r.allReady(append(r.living(), joined)...))
		},
	}
}

// skewKCM replaces the KCM by one whose clock is off.
func (r *run) skewKCM(ctx context.Context, ahead time.Duration) *skew.Proxy {
	ginkgo.GinkgoHelper()
	certPEM, keyPEM, err := r.Cluster.ServingCert("skew")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.Cluster.CAData())
	clock, err := skew.Start(skew.Options{Server: r.Proxy.URL(), CAs: roots, Cert: cert, Ahead: ahead})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(clock.Close)
	gomega.Expect(r.KCM.Kill()).To(gomega.Succeed())
	kcm, err := r.StartKCM(ctx, "kube-controller-manager-skewed", r.Proxy, func(o *controlplane.KCMOptions) { o.Server = clock.URL() })
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(kcm)
	return clock
}

// joinSilent registers a node whose kubelet does not report yet.
func (r *run) joinSilent(ctx context.Context, client kubernetes.Interface, name string) string {
	ginkgo.GinkgoHelper()
	_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-a"},
	}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return name
}
