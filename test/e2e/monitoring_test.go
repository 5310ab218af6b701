// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/fresh-kcm/fresh-kcm/build/manifests"
	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// What operators are given holds together with what runs: page, metrics, alerts, dashboard, gates.
var _ = ginkgo.Describe("Staleness of caches, as operators see it", ginkgo.Label("monitoring", ordinary), gates.MonitorInformerStaleness(), ginkgo.Ordered, priority(8*time.Minute), func() {
	var r *run

	ginkgo.BeforeAll(func(ctx context.Context) {
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: smokeNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r = &run{Rig: fixture}
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if ginkgo.CurrentSpecReport().Failed() {
				r.Cluster.Keep()
			}
			gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
		})
	}, ginkgo.NodeTimeout(slowMachine*2*time.Minute))

	ginkgo.It("measures every informer of the shared factories", func(ctx context.Context) {
		r.measured(ctx)
		watched := sets.New[string]()
		for _, w := range r.Proxy.Watches() {
			watched.Insert(w.Request.Resource.String())
		}
		for _, c := range readStalenessz(ctx, r).Caches {
			watched.Delete(strings.TrimSuffix(c.Resource+"."+c.Group, "."))
		}
		gomega.Expect(watched.UnsortedList()).To(gomega.BeEmpty(), "watched, but not measured")
	}, ginkgo.SpecTimeout(slowMachine*2*time.Minute))

	ginkgo.It("has every metric and label that alerts, SLIs and dashboard ask for", func(ctx context.Context) {
		// How long a write takes to reach a cache is known once one has, and how long objects wait once one has waited.
		delay := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Delay{By: time.Second})
		defer delay.Clear()
		set := create(ctx, r, workload.DaemonSet("written"))
		r.converges(ctx, "a DaemonSet", stepLimit, r.daemonSetDone(set, smokeNodes))
		expectQueries(page(ctx, r.KCM, "/metrics"))
	}, ginkgo.SpecTimeout(slowMachine*time.Minute))

	ginkgo.It("shows the page only to those who may see it", func(ctx context.Context) {
		const account = "page-reader"
		_, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		token, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(status(ctx, r, "")).To(gomega.Equal(http.StatusForbidden), "anonymous")
		gomega.Expect(status(ctx, r, token.Status.Token)).To(gomega.Equal(http.StatusForbidden), "without rights")

		gomega.Expect(manifests.ApplyStalenesszRBAC(ctx, r.Client)).To(gomega.Succeed())
		_, err = r.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fresh-kcm:stalenessz-viewer"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
		}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		// The refusal is remembered for a while (delegated authorization, 10 s by default).
		gomega.Eventually(ctx, func(ctx context.Context) int { return status(ctx, r, token.Status.Token) }).
			WithTimeout(patience).WithPolling(time.Second).Should(gomega.Equal(http.StatusOK))
	}, ginkgo.SpecTimeout(slowMachine*time.Minute))

	restart := func(ctx context.Context, consistency, monitor bool) {
		ginkgo.GinkgoHelper()
		gomega.Expect(r.KCM.Restart(ctx, func(o *controlplane.ProcessOptions) {
			o.FeatureGates = map[string]bool{string(features.StaleControllerConsistency): consistency, string(features.MonitorInformerStaleness): monitor}
		})).To(gomega.Succeed())
	}

	ginkgo.It("monitors without StaleControllerConsistency, too", func(ctx context.Context) {
		restart(ctx, false, true)
		r.measured(ctx)
		runDaemonSet(ctx, r.Client, "monitor-only")
	}, ginkgo.SpecTimeout(slowMachine*3*time.Minute))

	ginkgo.It("sends no probe with MonitorInformerStaleness off", func(ctx context.Context) {
		restart(ctx, true, false)
		runDaemonSet(ctx, r.Client, "consistency-only")
		gomega.Expect(page(ctx, r.KCM, stalenessz.Path)).To(gomega.ContainSubstring("MonitorInformerStaleness is off"))
		// The proofs of the start are done; from now on nothing is asked without a cause.
		before := freshnessReads(r)
		time.Sleep(3 * stalenessPeriod)
		gomega.Expect(freshnessReads(r)).To(gomega.Equal(before))
		gomega.Expect(page(ctx, r.KCM, "/metrics")).NotTo(gomega.ContainSubstring("informer_staleness_state"))
	}, ginkgo.SpecTimeout(slowMachine*2*time.Minute))

	ginkgo.It("has no page with both gates off", func(ctx context.Context) {
		restart(ctx, false, false)
		_, err := r.KCM.Get(ctx, stalenessz.Path)
		gomega.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("404")))
	}, ginkgo.SpecTimeout(slowMachine*2*time.Minute))
})

// status asks the KCM's secure port for the page with a token, or without.
func status(ctx context.Context, r *run, token string) int {
	ginkgo.GinkgoHelper()
	roots := x509.NewCertPool()
	gomega.Expect(roots.AppendCertsFromPEM(r.Cluster.CAData())).To(gomega.BeTrue())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.KCM.URL()+stalenessz.Path, nil)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	defer resp.Body.Close()
	return resp.StatusCode
}

// freshnessReads counts what the prover's client has asked the apiserver.
func freshnessReads(r *run) int {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	n := 0
	for _, e := range events {
		if strings.HasSuffix(e.UserAgent, " freshness") {
			n++
		}
	}
	return n
}

var (
	selector = regexp.MustCompile(`\b((?:stale_controller|informer_staleness|leader_election|process_start)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|=|!=|!~)`)
	// ofRecords matches the queries that ask for what other rules have recorded, and the thresholds.
	ofRecords = regexp.MustCompile(`\bfresh_kcm_sl[io]:|^vector\(`)
	grouping  = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// expectQueries checks each metric, and the labels by which it is selected, against what a KCM serves, and the
// labels by which results are grouped against all of them.
func expectQueries(metrics string) {
	ginkgo.GinkgoHelper()
	labels := map[string]sets.Set[string]{}
	all := sets.New("instance", "job")
	for line := range strings.Lines(metrics) {
		name, rest, _ := strings.Cut(line, "{")
		if strings.HasPrefix(name, "#") {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		set, _, _ := strings.Cut(rest, "}")
		labels[name] = sets.New("instance", "job")
		for _, m := range matcher.FindAllStringSubmatch(set, -1) {
			labels[name].Insert(m[1])
			all.Insert(m[1])
		}
	}
	checked := 0
	for _, query := range queries() {
		found := selector.FindAllStringSubmatch(query, -1)
		gomega.Expect(found).NotTo(gomega.BeEmpty(), query)
		for _, m := range found {
			gomega.Expect(labels).To(gomega.HaveKey(m[1]), "KCM serves it; query %s", query)
			for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
				gomega.Expect(labels[m[1]].Has(label[1])).To(gomega.BeTrue(), "%s has the label %s; query %s", m[1], label[1], query)
			}
			checked++
		}
		for _, m := range grouping.FindAllStringSubmatch(query, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				gomega.Expect(all.Has(strings.TrimSpace(label))).To(gomega.BeTrue(), "there is a label %s; query %s", label, query)
			}
		}
	}
	gomega.Expect(checked).To(gomega.BeNumerically(">", 30))
}

// queries are those of the dashboard, the alerts and the SLIs.
func queries() []string {
	ginkgo.GinkgoHelper()
	const dir = "../../build/monitoring/"
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	file, err := os.ReadFile(dir + "dashboard.json")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(json.Unmarshal(file, &dashboard)).To(gomega.Succeed())
	var out []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if !ofRecords.MatchString(target.Expr) {
				out = append(out, target.Expr)
			}
		}
	}
	for _, name := range []string{"alerts.yaml", "slos.yaml"} {
		var rules struct {
			Groups []struct{ Rules []struct{ Expr string } }
		}
		file, err = os.ReadFile(dir + name)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(yaml.Unmarshal(file, &rules)).To(gomega.Succeed())
		for _, group := range rules.Groups {
			for _, rule := range group.Rules {
				if !ofRecords.MatchString(rule.Expr) {
					out = append(out, rule.Expr)
				}
			}
		}
	}
	gomega.Expect(len(out)).To(gomega.BeNumerically(">", 30))
	return out
}
