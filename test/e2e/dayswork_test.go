// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// workEvery is how often something of each kind is done.
	workEvery = 20 * time.Second
	// passingNodes are those that come and go.
	passingNodes = 3
)

// daysWork has a DaemonSet rolled, a Deployment scaled, nodes join and leave, and pods and leases churn, until it
// is stopped.
func daysWork(ctx context.Context, r *run) (stop func()) {
	const set, scaled = "daily", "scaled"
	r.judges = append(r.judges, nodeIsGone, oracle.ReplicaSetDeletes)
	create(ctx, r, workload.DaemonSet(set, workload.MaxUnavailable(3)))
	_, err := r.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, workload.Deployment(scaled, 5), metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	stopChurn := churn(ctx, r)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer ginkgo.GinkgoRecover()
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			var err error
			switch i % 4 {
			case 0:
				_, err = r.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Patch(ctx, set, types.StrategicMergePatchType,
					fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"%s:%d"}]}}}}`, workload.Image, i), metav1.PatchOptions{})
			case 1:
				_, err = r.Client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(ctx, scaled, types.MergePatchType,
					fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 5+(i*7)%25), metav1.PatchOptions{})
			case 2:
				// Their names are not used again.
				_, err = r.Cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: passingNodes, Prefix: "passing-"})
			case 3:
				err = leave(ctx, r)
			}
			if ctx.Err() == nil {
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
			}
			select {
			case <-ctx.Done():
			case <-time.After(workEvery / 4):
			}
		}
	}()
	return func() { cancel(); <-done; stopChurn() }
}

// nodeIsGone justifies the deletion of a pod.
func nodeIsGone(t *truth.Recorder, d oracle.Deletion) string {
	for _, node := range t.At(truth.Nodes, d.RV-1) {
		if node.Name == d.Pod.Spec.NodeName {
			return ""
		}
	}
	return "its node is gone"
}

// leave deletes the nodes that have come last.
func leave(ctx context.Context, r *run) error {
	names := r.Cluster.Nodes().Names()
	for _, name := range names[len(names)-passingNodes:] {
		if err := r.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
