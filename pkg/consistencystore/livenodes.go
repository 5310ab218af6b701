// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// LiveNodes implements what consistency.LiveNodes asks for.
func (s *Store) LiveNodes(client clientset.Interface) func(name string) (*corev1.Node, error) {
	if s.budget == nil {
		return nil
	}
	livereads.InitReads(s.name, nodeResource)
	reads := livereads.NewReads(s.ctx, s.name, nodeResource, s.budget, func(ctx context.Context, name string) (*corev1.Node, error) {
		c := client.CoreV1()
		if r := livereads.Once(c.RESTClient()); r != nil {
			node := &corev1.Node{}
			return node, r.Resource("nodes").Name(name).Do(ctx).Into(node)
		}
		return c.Nodes().Get(ctx, name, metav1.GetOptions{})
	})
	return livereads.NewSharedReads(reads).Get
}
