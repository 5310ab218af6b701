// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

var nodeGroupResource = v1.Resource("nodes")

// whenForced is what a pass does by the cached node alone: it detaches a volume without asking the server whether the node
// still uses it.
const whenForced = "forced detaches"

// Prove has the reconciler prove that its nodes are fresh before it forces a detach. It must be called before Run.
func Prove(rc Reconciler, nodes coreinformers.NodeInformer) {
	if rc, ok := rc.(*reconciler); ok {
		rc.consistencyStore = consistencyutil.NewIfProvided("attachdetach", map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
			nodeGroupResource: nodes.Informer().GetStore(),
		})
	}
}

// unproven reports whether what is known of the node is not proven fresh. The volume is then detached as one of a node that is
// well: once the node has unmounted it, which is read from the server before.
func unproven(ctx context.Context, node types.NodeName) bool {
	err := consistencyutil.ProvePass(ctx, whenForced, nodeGroupResource)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("No volume is detached by force in this pass", "node", klog.KRef("", string(node)), "reason", err)
	}
	return err != nil
}
