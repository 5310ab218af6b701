// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	v1 "k8s.io/api/core/v1"
	clientset "k8s.io/client-go/kubernetes"
)

// LiveNodesStore is optionally implemented by a provider's store.
type LiveNodesStore interface {
	// LiveNodes returns what reads a node from the server, or nil. It reads each only once in a while, and waits for it briefly;
	// an error says nothing of whether there is the node.
	LiveNodes(client clientset.Interface) func(name string) (*v1.Node, error)
}

// LiveNodes returns the store's, or nil if it has none.
func LiveNodes(store ConsistencyStore, client clientset.Interface) func(name string) (*v1.Node, error) {
	if s, ok := store.(LiveNodesStore); ok {
		return s.LiveNodes(client)
	}
	return nil
}
