// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	k8stesting "k8s.io/client-go/testing"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// lists of nodes, once armed, are counted, and answered with forbid, unless nil.
type lists struct {
	armed  atomic.Bool
	n      atomic.Int64
	forbid error
}

func (l *lists) client(e *evictions) kubernetes.Interface {
	e.client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		if !l.armed.Load() {
			return false, nil, nil
		}
		l.n.Add(1)
		return l.forbid != nil, nil, l.forbid
	})
	return e.client
}

// heldNodes taints so many nodes, with a pod each that tolerates that for 10 s, and then holds the watch of nodes: of
// every other one the taint goes.
func heldNodes(e *evictions, n int) {
	for i := range n {
		name := fmt.Sprint("node", i)
		e.taintNode(name)
		e.podOn(name, fmt.Sprint("pod", i), fmt.Sprint("uid", i), 10*time.Second)
	}
	for i := range n {
		e.taintNode(fmt.Sprint("node", i), noExec("a"))
	}
	e.nodes.hold()
	for i := 1; i < n; i += 2 {
		e.taintNode(fmt.Sprint("node", i))
	}
}

func (e *evictions) onTainted(t *testing.T) (wrong int) {
	pods, err := e.client.Tracker().List(podGVR, corev1.SchemeGroupVersion.WithKind("Pod"), "ns")
	require.NoError(t, err)
	for _, pod := range pods.(*corev1.PodList).Items {
		node, err := e.client.Tracker().Get(nodeGVR, "", pod.Spec.NodeName)
		require.NoError(t, err)
		if len(node.(*corev1.Node).Spec.Taints) > 0 {
			wrong++
		}
	}
	return wrong
}

// TestManyNodesAreListed: the watch of nodes is held, and pods of 100 nodes are due. One list decides on all but the
// first few, where single reads would take 90 s, at one a second.
func TestManyNodesAreListed(t *testing.T) {
	lists := &lists{}
	runEvictionsWith(t, true, lists.client, func(e *evictions) {
		lists.armed.Store(true)
		heldNodes(e, 100)
		require.Equal(t, 50, e.after(20*time.Second), "the pods on nodes without taints stay")
		require.Zero(t, e.onTainted(t))
		require.Positive(t, lists.n.Load())
		require.LessOrEqual(t, int(lists.n.Load()), 2)
		require.LessOrEqual(t, e.reads, livereads.DefaultBurst+fewReads)
		require.Equal(t, 50, e.after(10*time.Minute))
		require.LessOrEqual(t, int(lists.n.Load()), 2)
	})
}

// TestListsAreForbidden: then nodes are read one by one.
func TestListsAreForbidden(t *testing.T) {
	lists := &lists{forbid: apierrors.NewForbidden(nodesResource, "", nil)}
	runEvictionsWith(t, true, lists.client, func(e *evictions) {
		lists.armed.Store(true)
		heldNodes(e, 40)
		require.Equal(t, 20, e.after(10*time.Minute))
		require.Zero(t, e.onTainted(t))
		require.Positive(t, lists.n.Load())
		require.LessOrEqual(t, int(lists.n.Load()), 3)
	})
}
