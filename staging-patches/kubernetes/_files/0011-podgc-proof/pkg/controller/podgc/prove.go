// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

var (
	podGroupResource  = v1.Resource("pods")
	nodeGroupResource = v1.Resource("nodes")
)

// What a pass deletes on what may have changed: how many pods have ended, and whether a node serves. That a pod has ended,
// terminates or is on a node is final, and upstream asks the server whether a node is gone, so the UID is enough for the rest.
const (
	whenTerminated   = "terminated pods"
	whenOutOfService = "pods on out-of-service nodes"
)

func newConsistencyStore(pods coreinformers.PodInformer, nodes coreinformers.NodeInformer) consistencyutil.ConsistencyStore {
	return consistencyutil.NewIfProvided("podgc", map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		podGroupResource:  pods.Informer().GetStore(),
		nodeGroupResource: nodes.Informer().GetStore(),
	})
}

// unproven reports whether the pass must not delete such pods now.
func unproven(ctx context.Context, action string, resources ...schema.GroupResource) bool {
	err := consistencyutil.ProvePass(ctx, action, resources...)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("No pods are deleted in this pass", "action", action, "reason", err)
	}
	return err != nil
}

// unlessReplaced is the error of a write to the pod, unless that was refused because another pod has its name.
func (gcc *PodGCController) unlessReplaced(ctx context.Context, pod *v1.Pod, err error) error {
	if !consistencyutil.Replaced(gcc.consistencyStore, err) {
		return err
	}
	klog.FromContext(ctx).Info("Another pod has the name of the one to delete, and is left alone", "pod", klog.KObj(pod), "uid", pod.UID)
	return nil
}
