// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const wrongedNodes = 3

// What no arm does is done here in the controllers' names, on a real control plane: S2 finds each of it, and nothing before it.
var _ = ginkgo.Describe("The oracles", gates.StaleControllerConsistency(), ginkgo.Label("oracles", long), func() {
	ginkgo.It("find wrong actions by whatever identity and verb", func(ctx context.Context) {
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Rest: true, Forges: true, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: wrongedNodes}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture, idle: true}
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if ginkgo.CurrentSpecReport().Failed() {
				dir, err := r.Keep()
				ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
			}
			gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
		})
		const name = "wronged"
		set := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(wrongedNodes)))
		r.converges(ctx, "the DaemonSet to run", patience, r.daemonSetDone(set, wrongedNodes))
		setImage(ctx, r, name, workload.Image+":second")
		r.eventually(ctx, "the DaemonSet to be rolled", func() (bool, error) { return r.daemonSetDone(set, wrongedNodes)() == nil, nil })
		r.judge(ctx)
		gomega.Expect(r.violations).To(gomega.BeEmpty())

		wrong := func(what, rule string, n int, do func() error) {
			ginkgo.GinkgoHelper()
			// An action may rest on what was so before for that long.
			r.passes(ctx, "nothing to happen", time.Now(), 2*proofAge)
			before := oracle.Count(r.violations)["S2 "+rule]
			gomega.Expect(do()).To(gomega.Succeed(), what)
			r.eventually(ctx, what+" to be mended", func() (bool, error) { return r.daemonSetDone(set, wrongedNodes)() == nil, nil })
			r.violations = nil
			gomega.Expect(r.standing(ctx)).To(gomega.Succeed())
			gomega.Expect(oracle.Count(r.violations)["S2 "+rule]-before).To(gomega.Equal(n), "%s: %v", what, r.violations)
		}
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		wrong("a pod is marked not Ready for its node", oracle.RuleLivePod, 1, func() error {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			mark := func(status corev1.ConditionStatus, by kubernetes.Interface) error {
				return retry.RetryOnConflict(retry.DefaultRetry, func() error {
					pod, err := pods.Get(ctx, list.Items[0].Name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
					pod.Status.Conditions[at].Status = status
					_, err = by.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
					return err
				})
			}
			if err := mark(corev1.ConditionFalse, r.as(ctx, oracle.NodeController)); err != nil {
				return err
			}
			return mark(corev1.ConditionTrue, r.Client) // as a kubelet would
		})
		wrong("a revision that is to be kept is deleted", oracle.RuleRevisionDeleted, 1, func() error {
			old := slices.MinFunc(slices.Collect(maps.Values(r.Truth.At(truth.ControllerRevisions, truth.Latest))), func(a, b truth.Event) int {
				return int(a.Object.(*appsv1.ControllerRevision).Revision - b.Object.(*appsv1.ControllerRevision).Revision)
			})
			return r.as(ctx, oracle.DaemonSetController).AppsV1().ControllerRevisions(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{})
		})
		wrong("pods are deleted as a collection", oracle.RuleUnjustified, wrongedNodes, func() error {
			by := r.as(ctx, "namespace-controller")
			return by.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		})
		_, err = r.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "may-delete"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:" + oracle.KubeControllerManager}},
		}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		own, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.Cluster.Dir(), "kubeconfigs", r.KCM.Name()+".kubeconfig"))
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		wrong("a pod is deleted by the process's own identity", oracle.RuleUnjustified, 1, func() error {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			r.eventually(ctx, "the right to be there", func() (bool, error) {
				err := kubernetes.NewForConfigOrDie(own).CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{})
				return err == nil, nil
			})
			return nil
		})
	}, ginkgo.SpecTimeout(slowMachine*5*time.Minute))
})

// as returns a client that is a controller's service account.
func (r *run) as(ctx context.Context, account string) kubernetes.Interface {
	ginkgo.GinkgoHelper()
	return kubernetes.NewForConfigOrDie(r.configAs(ctx, account))
}

// configAs is the configuration of such a client.
func (r *run) configAs(ctx context.Context, account string) *rest.Config {
	ginkgo.GinkgoHelper()
	token, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	config := rest.AnonymousClientConfig(r.Cluster.AdminConfig())
	config.BearerToken = token.Status.Token
	return config
}
