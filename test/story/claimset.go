// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	claimSet       = "web"
	claimFinalizer = "lab.fresh-kcm.io/hold"
)

// claimOf names the claim of a replica.
func claimOf(ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", workload.ClaimTemplate, claimSet, ordinal)
}

// createClaimSet creates a StatefulSet whose claims are deleted with its pods when it is scaled down.
func (c *claimRun) createClaimSet(ctx context.Context, replicas int32) error {
	set := workload.WithClaims(workload.StatefulSet(claimSet, replicas), c.rig.Cluster.Nodes().Names()[0])
	if _, err := c.rig.Client.AppsV1().StatefulSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating StatefulSet default/%s: %w", claimSet, err)
	}
	return nil
}

func (c *claimRun) scale(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.rig.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Patch(ctx, claimSet, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling StatefulSet default/%s to %d: %w", claimSet, replicas, err)
	}
	return nil
}

// holdPod keeps a pod that is deleted from going, as a kubelet does that cannot stop it, or lets it go.
func (c *claimRun) holdPod(ctx context.Context, pod string, hold bool) error {
	finalizers := "null"
	if hold {
		finalizers = `["` + claimFinalizer + `"]`
	}
	patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
	_, err := c.rig.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing the finalizers of pod default/%s: %w", pod, err)
	}
	return nil
}
