// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Graph is what a controller builds of the events of many resources, which it works off in a queue of its own.
type Graph struct {
	// Mark has reached called once everything that was queued before is in the graph.
	Mark func(reached func())
	// Monitored returns the resources whose events are queued.
	Monitored func() []schema.GroupVersionResource
	// TrustAbsence has the controller look up again what it remembers as absent, while trusted is false; when it turns true,
	// that is forgotten.
	TrustAbsence func(trusted bool)
}

// GraphResource is one whose events are queued for a graph.
type GraphResource struct {
	schema.GroupVersionResource
	Kind       schema.GroupKind
	Namespaced bool
}

// GraphOwner is an object that is deleted, but waits for its dependents.
type GraphOwner struct {
	types.NamespacedName
	Kind schema.GroupKind
	UID  types.UID
	// Blocking means that only those dependents count that may block the deletion.
	Blocking bool
}

// GraphGuard tells whether a graph has what the server has.
type GraphGuard interface {
	// Follow returns the handler to add to the resource's informer in the place of handler.
	Follow(resource GraphResource, store cache.Store, handler cache.ResourceEventHandler) cache.ResourceEventHandler
	// Proven reports whether the graph has all dependents that the owner had when Proven was first called for it. If not, again
	// is called when to ask again; no owner waits without limit.
	Proven(owner GraphOwner, again func()) bool
	// Waiting reports whether Proven was asked about an owner whose dependents are orphaned, and has yet to call again.
	Waiting(owner types.UID) bool
}

// GraphStore is optionally implemented by a provider's store.
type GraphStore interface {
	// GuardGraph returns nil if the store cannot tell.
	GuardGraph(graph Graph) GraphGuard
}
