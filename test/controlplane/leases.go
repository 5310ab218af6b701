// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// leaseWorkers is how many renewals are under way at once.
	leaseWorkers = 16
	// leaseJitter is the kubelet's.
	leaseJitter = 0.04
	// leaseTimeout ends a renewal that is not answered.
	leaseTimeout = 10 * time.Second
)

// leaseGenerator renews nodes' leases as kubelets do: one update for each renewal, made from the answer to the last.
// It watches nothing. All methods are safe for concurrent use.
type leaseGenerator struct {
	client   coordinationclient.LeaseInterface
	duration time.Duration
	queue    workqueue.TypedDelayingInterface[string]

	mu     sync.Mutex
	nodes  map[string]*leasedNode
	paused bool

	stop    context.CancelFunc
	workers sync.WaitGroup
}

// leasedNode is a node of the generator. The worker that renews its lease owns lease: the queue hands out a name once.
type leasedNode struct {
	owner metav1.OwnerReference
	alive bool
	lease *coordinationv1.Lease
}

// startLeaseGenerator returns one without nodes.
func startLeaseGenerator(ctx context.Context, config *rest.Config, duration time.Duration) (*leaseGenerator, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("renewing leases: %w", err)
	}
	return newLeaseGenerator(ctx, client.Leases(nodeLeaseNamespace), duration), nil
}

func newLeaseGenerator(ctx context.Context, client coordinationclient.LeaseInterface, duration time.Duration) *leaseGenerator {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &leaseGenerator{
		client: client, duration: duration, stop: stop,
		queue: workqueue.NewTypedDelayingQueue[string](), nodes: map[string]*leasedNode{},
	}
	for range leaseWorkers {
		g.workers.Go(func() { g.work(ctx) })
	}
	return g
}

// end returns when no renewal is under way.
func (g *leaseGenerator) end() {
	g.stop()
	g.queue.ShutDown()
	g.workers.Wait()
}

// add has a node's lease made now, and renewed from then on.
func (g *leaseGenerator) add(node *corev1.Node) {
	g.mu.Lock()
	g.nodes[node.Name] = &leasedNode{alive: true, owner: metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	g.mu.Unlock()
	g.queue.Add(node.Name)
}

// remove forgets nodes. Their leases stay, for the garbage collector.
func (g *leaseGenerator) remove(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		delete(g.nodes, name)
	}
}

// setAlive says whether a node renews its lease. One that lives again does so at once.
func (g *leaseGenerator) setAlive(name string, alive bool) {
	g.mu.Lock()
	node := g.nodes[name]
	if node != nil {
		node.alive = alive
	}
	g.mu.Unlock()
	if node != nil && alive {
		g.queue.Add(name)
	}
}

// pause stops all renewals, or has those of all living nodes go on, at once.
func (g *leaseGenerator) pause(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = paused
	if paused {
		return
	}
	for name := range g.nodes {
		g.queue.Add(name)
	}
}

// living returns the node if its lease is to be renewed.
func (g *leaseGenerator) living(name string) *leasedNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	if node := g.nodes[name]; node != nil && node.alive && !g.paused {
		return node
	}
	return nil
}

func (g *leaseGenerator) work(ctx context.Context) {
	for {
		name, ended := g.queue.Get()
		if ended {
			return
		}
		if node := g.living(name); node != nil {
			if err := g.renew(ctx, name, node); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "A node's lease was not renewed", "node", name)
			}
			g.queue.AddAfter(name, wait.Jitter(g.duration/4, leaseJitter))
		}
		g.queue.Done(name)
	}
}

// renew renews a node's lease, which is made if it is not there. What a failure leaves is read anew by the next renewal.
func (g *leaseGenerator) renew(ctx context.Context, name string, node *leasedNode) (err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if node.lease == nil {
		if node.lease, err = g.client.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			node.lease, err = g.client.Create(ctx, g.newLease(name, node), metav1.CreateOptions{})
			return dropped(node, err)
		} else if err != nil {
			return dropped(node, err)
		}
	}
	next := g.newLease(name, node)
	next.ResourceVersion = node.lease.ResourceVersion
	node.lease, err = g.client.Update(ctx, next, metav1.UpdateOptions{})
	return dropped(node, err)
}

// dropped forgets the lease after an error.
func dropped(node *leasedNode, err error) error {
	if err != nil {
		node.lease = nil
	}
	return err
}

func (g *leaseGenerator) newLease(name string, node *leasedNode) *coordinationv1.Lease {
	seconds, now := int32(g.duration.Seconds()), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: nodeLeaseNamespace, OwnerReferences: []metav1.OwnerReference{node.owner}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
}
