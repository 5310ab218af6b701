// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/nodebreaker"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	// nodeLifecycle is the name under which node lifecycle asks for its store.
	nodeLifecycle = "nodelifecycle"
	// LeasesUnverifiedReason is the reason of the Warning event on the namespace of the leases when node
	// health could not be verified for more than a minute.
	LeasesUnverifiedReason = "LeasesUnverified"
)

var (
	leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	nodeResource  = schema.GroupResource{Resource: "nodes"}
)

// NodeStore is node lifecycle's consistency store, which also has a breaker.
type NodeStore struct {
	*Store
	prove   func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	reached func(resourceVersion string) bool
	report  func(ctx context.Context, cause string)
}

// newNodeStore returns a store whose breaker asks prove for proofs, and reads live, within the store's budget, what cannot be
// proven.
func newNodeStore(store *Store, prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof) *NodeStore {
	return &NodeStore{Store: store, prove: prove, reached: func(string) bool { return false }}
}

// EnsureReady returns nil: the breaker decides at the beginning of each pass, for all nodes at once.
func (s *NodeStore) EnsureReady(types.NamespacedName) error { return nil }

// NodeBreaker is what consistency.NewNodeBreaker asks for.
func (s *NodeStore) NodeBreaker(client clientset.Interface, grace time.Duration) consistency.NodeBreaker {
	nodes := guarded(s.Store, nodebreaker.NewNodes(nodebreaker.NodesOptions{
		Controller: s.name,
		Grace:      grace,
		Prove:      s.prove,
		Reached:    s.reached,
		Lease: func(name string) *coordv1.Lease {
			return lookup[*coordv1.Lease](s, leaseResource, corev1.NamespaceNodeLease+"/"+name)
		},
		Node: func(name string) *corev1.Node { return lookup[*corev1.Node](s, nodeResource, name) },
		ListLeases: func(ctx context.Context, opts metav1.ListOptions) (*coordv1.LeaseList, error) {
			c := client.CoordinationV1()
			if r := livereads.Once(c.RESTClient()); r != nil {
				return into(ctx, r.Namespace(corev1.NamespaceNodeLease).Resource("leases").VersionedParams(&opts, scheme.ParameterCodec), &coordv1.LeaseList{})
			}
			return c.Leases(corev1.NamespaceNodeLease).List(ctx, opts)
		},
		GetLease: func(ctx context.Context, name string) (*coordv1.Lease, error) {
			c := client.CoordinationV1()
			if r := livereads.Once(c.RESTClient()); r != nil {
				return into(ctx, r.Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(name), &coordv1.Lease{})
			}
			return c.Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		},
		GetNode: func(ctx context.Context, name string) (*corev1.Node, error) {
			c := client.CoreV1()
			if r := livereads.Once(c.RESTClient()); r != nil {
				return into(ctx, r.Resource("nodes").Name(name), &corev1.Node{})
			}
			return c.Nodes().Get(ctx, name, metav1.GetOptions{})
		},
		Budget: s.budget,
		Report: s.report,
	}))
	return &nodeBreaker{Nodes: nodes, held: s.held}
}

func into[T runtime.Object](ctx context.Context, r *rest.Request, out T) (T, error) {
	return out, r.Do(ctx).Into(out)
}

// lookup reads a controller's cache.
func lookup[T any](s *NodeStore, resource schema.GroupResource, key string) (none T) {
	store, ok := s.caches[resource].(cache.Store)
	if !ok {
		return none
	}
	object, _, _ := store.GetByKey(key)
	found, _ := object.(T)
	return found
}

// allNodes is the name under which a pass waits for the start of leadership.
var allNodes = types.NamespacedName{Name: "all nodes"}

const (
	// passWait is how long a pass waits for the start, so as not to be put off by a whole period for a few requests, and passPoll how often it looks.
	passWait = time.Second
	passPoll = 20 * time.Millisecond
)

// nodeBreaker delays the first pass until the caches are as new as the start of leadership.
type nodeBreaker struct {
	*nodebreaker.Nodes
	held *holds

	since sync.Once
	until time.Time
}

// BeginPass reports whether the pass may be made; see nodebreaker.Nodes.
func (b *nodeBreaker) BeginPass(ctx context.Context) bool {
	if b.held.all.Load() != nil {
		limit := rvtracker.StartLimits.Unknown // Also of a stale cache, which must not hide dead nodes: each action of a pass has a proof of its own.
		b.since.Do(func() { b.until = time.Now().Add(limit) })
		switch {
		case !time.Now().Before(b.until):
			b.held.change(func() {
				delete(b.held.owners[stalenessz.ForStart], allNodes)
				b.held.count(stalenessz.ForStart)
			})
		case !b.startsSoon(ctx):
			_ = b.held.refuse(allNodes)
			klog.FromContext(ctx).Info("The first pass over the nodes waits until the caches are as new as the start of leadership", "atMost", limit)
			return false
		}
	}
	return b.Nodes.BeginPass(ctx)
}

// startsSoon waits for the start for a moment, and reports whether it has come.
func (b *nodeBreaker) startsSoon(ctx context.Context) bool {
	return wait.PollUntilContextTimeout(ctx, passPoll, passWait, true, func(context.Context) (bool, error) { return b.held.all.Load() == nil, nil }) == nil
}

// reportNodes records that node lifecycle has waited for more than a minute.
func (r *Reporter) reportNodes(_ context.Context, cause string) {
	if r.events == nil {
		return
	}
	object := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: corev1.NamespaceNodeLease}
	r.events.Event(object, corev1.EventTypeWarning, LeasesUnverifiedReason, fmt.Sprintf("Node health could not be verified for over a minute; no node will be marked Unknown: %s", cause))
}
