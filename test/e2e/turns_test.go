// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// contender is an arm that has its turn on a cluster that all of them share. P=path is P of another build.
type contender string

// Besides the arms there is P without the monitor, whose requests come with time and not with work.
const (
	contenderU0    = contender(rig.U0)
	contenderU1    = contender(rig.U1)
	contenderP     = contender(rig.P)
	contenderQuiet = contender("P-unmonitored")
)

func (c contender) options() controlplane.KCMOptions {
	if c == contenderQuiet {
		options := rig.P.KCM()
		options.FeatureGates = map[string]bool{string(features.MonitorInformerStaleness): false}
		return options
	}
	arm, binary, _ := strings.Cut(string(c), "=")
	options := rig.Arm(arm).KCM()
	options.Binary = binary
	return options
}

// ours says whether it is this project's binary with its gates on.
func (c contender) ours() bool { return strings.HasPrefix(string(c), string(rig.P)) }

// turnsVariable chooses which arms take turns, and how often, by their names with commas between them.
const turnsVariable = "TURNS"

func chosenArms(byDefault ...contender) (arms []contender) {
	chosen := os.Getenv(turnsVariable)
	if chosen == "" {
		return byDefault
	}
	for name := range strings.SplitSeq(chosen, ",") {
		arms = append(arms, contender(name))
	}
	return arms
}

// turns starts a cluster without a kube-controller-manager.
func turns(ctx context.Context, options controlplane.Options) *run {
	ginkgo.GinkgoHelper()
	fixture, err := rig.Start(ctx, rig.Options{Arm: rig.U1, Cluster: options})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r := &run{Rig: fixture}
	ginkgo.DeferCleanup(func(ctx context.Context) {
		if ginkgo.CurrentSpecReport().Failed() {
			dir, err := r.Keep()
			ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
		}
		gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
	})
	// Nobody else is to look at every event.
	r.Truth.Stop()
	r.resign(ctx)
	return r
}

// resign ends the kube-controller-manager and its leadership, so that the next one need not wait for it to run out.
func (r *run) resign(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.KCM.Stop()).To(gomega.Succeed())
	err := r.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})
	gomega.Expect(err).To(gomega.Or(gomega.Succeed(), gomega.Satisfy(apierrors.IsNotFound)))
}

// takesTurn runs a contender, through a server's URL unless that is empty, has it do something, and ends it again.
func (r *run) takesTurn(ctx context.Context, c contender, number int, server string, do func(name string)) {
	ginkgo.GinkgoHelper()
	options := c.options()
	options.Name, options.Server = fmt.Sprintf("turn-%d", number), server
	options.Args = append(options.Args, r.kcmArgs...)
	kcm, err := r.Cluster.StartKCM(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(kcm)
	if c.ours() && c != contenderQuiet {
		r.measured(ctx)
	}
	do(options.Name)
	gomega.Expect(r.SameKCM(ctx)).To(gomega.Succeed())
	r.resign(ctx)
}

// namespace makes a namespace in which pods can be created.
func (r *run) namespace(ctx context.Context, name string, labels map[string]string) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the service account of "+name, func() (bool, error) {
		_, err := r.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ignoreNotFound(err)
	})
}

// removeNamespaces deletes them and waits until they are gone.
func (r *run) removeNamespaces(ctx context.Context, names ...string) {
	ginkgo.GinkgoHelper()
	for _, name := range names {
		gomega.Expect(ignoreNotFound(r.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))).To(gomega.Succeed())
	}
	for _, name := range names {
		gomega.Expect(rig.Wait(ctx, 5*time.Minute, "the namespace "+name+" to be gone", func() (bool, error) {
			_, err := r.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), ignoreNotFound(err)
		})).To(gomega.Succeed())
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// withChildren are a namespace and those whose names go on with a hyphen.
func withChildren(events []controlplane.AuditEvent, namespace string) []string {
	out := []string{namespace}
	for i := range events {
		if of := events[i].ObjectRef.Namespace; strings.HasPrefix(of, namespace+"-") && !slices.Contains(out, of) {
			out = append(out, of)
		}
	}
	return out
}

// writesNothing waits until the kube-controller-manager has written nothing in a namespace for a while, and
// returns when its last write was answered.
func (r *run) writesNothing(ctx context.Context, namespace string, since time.Time, quiet time.Duration) (last time.Time) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the kube-controller-manager to have nothing left to write in "+namespace, func() (bool, error) {
		events, err := r.Audit()
		last = time.Time{}
		for _, name := range withChildren(events, namespace) {
			if of := oracle.LastWrite(events, name); of.After(last) {
				last = of
			}
		}
		if last.IsZero() {
			last = since
		}
		return time.Since(last) > quiet, err
	})
	return last
}
