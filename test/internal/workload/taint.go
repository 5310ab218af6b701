// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// SetTaints gives a node these taints and no others, and returns the node's resource version then.
func SetTaints(ctx context.Context, client kubernetes.Interface, node string, taints ...corev1.Taint) (rv string, err error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		return "", err
	}
	changed, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("setting the taints of node %s: %w", node, err)
	}
	return changed.ResourceVersion, nil
}
