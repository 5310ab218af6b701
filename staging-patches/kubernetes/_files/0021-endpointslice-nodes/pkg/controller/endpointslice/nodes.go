// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// lackedFor is for how long it is remembered that the cache has lacked a node: for longer than a Service waits to be tried again.
const lackedFor = 2 * maxSyncBackOff

// confirmedNodes are the nodes of the cache, and those of the server that it lacks.
type confirmedNodes struct {
	corelisters.NodeLister
	live func(name string) (*v1.Node, error)

	mu     sync.Mutex
	lacked map[string]time.Time
	// gone are those that the cache has seen go, for as long: nobody is asked for these.
	gone map[string]time.Time
}

// confirm returns the lister with nodes that it lacks looked up on the server, if there is a store that can.
func (c *Controller) confirm(nodes corelisters.NodeLister) corelisters.NodeLister {
	c.consistencyStore = consistencyutil.NewIfProvided("endpointslice", nil)
	live := consistencyutil.LiveNodes(c.consistencyStore, c.client)
	if live == nil {
		return nodes
	}
	return &confirmedNodes{NodeLister: nodes, live: live, lacked: map[string]time.Time{}, gone: map[string]time.Time{}}
}

// Get implements corelisters.NodeLister.
func (n *confirmedNodes) Get(name string) (*v1.Node, error) {
	if node, err := n.NodeLister.Get(name); !apierrors.IsNotFound(err) {
		return node, err
	}
	gone := n.lacks(name)
	node, err := n.NodeLister.Get(name) // It may have come before that was noted.
	if gone || !apierrors.IsNotFound(err) {
		return node, err
	}
	if live, liveErr := n.live(name); liveErr == nil {
		return live, nil
	}
	return node, err
}

// lacks notes that the cache lacks the node, and reports whether it has seen it go.
func (n *confirmedNodes) lacks(name string) (gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note(n.lacked, name)
	_, gone = n.gone[name]
	return gone
}

// note adds the name, and forgets those that are too old.
func note(names map[string]time.Time, name string) {
	maps.DeleteFunc(names, func(_ string, since time.Time) bool { return time.Since(since) > lackedFor })
	names[name] = time.Now()
}

// hasLacked reports, once, whether the node was looked up while the cache lacked it.
func (n *confirmedNodes) hasLacked(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, lacked := n.lacked[name]
	delete(n.lacked, name)
	delete(n.gone, name)
	return lacked
}

// nodeWent has nobody asked for the node until it comes again.
func (c *Controller) nodeWent(obj interface{}) {
	nodes, ok := c.nodeLister.(*confirmedNodes)
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); ok && err == nil {
		nodes.mu.Lock()
		defer nodes.mu.Unlock()
		note(nodes.gone, name)
	}
}

// nodeCame has the Services looked at again that have pods on a node which the cache has lacked.
func (c *Controller) nodeCame(obj interface{}) {
	nodes, ok := c.nodeLister.(*confirmedNodes)
	node, isNode := obj.(*v1.Node)
	if !ok || !isNode || !nodes.hasLacked(node.Name) {
		return
	}
	pods, err := c.podLister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == node.Name {
			c.onPodUpdate(nil, pod)
		}
	}
}
