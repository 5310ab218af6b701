// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	// nodeWorkers is how many requests about nodes are under way at once.
	nodeWorkers = 16
	// nodesTimeout is longer than any detection of a dead node.
	nodesTimeout = 5 * time.Minute
)

// Nodes creates nodes and lets them die and live. A dead node sends no heartbeat and reports nothing:
// what is on it stays on it, also pods being deleted.
type Nodes struct {
	cluster *Cluster
	client  func() (kubernetes.Interface, error)

	mu    sync.Mutex
	names []string
	made  int
}

func newNodes(c *Cluster) *Nodes {
	return &Nodes{cluster: c, client: sync.OnceValues(func() (kubernetes.Interface, error) {
		return kubernetes.NewForConfig(c.AdminConfig())
	})}
}

// Names returns the names of all nodes created and not deleted by Delete, in order of creation.
func (n *Nodes) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.names)
}

// Create makes nodes, waits until they are Ready, and returns their names. They are open to pods, tainted
// by nothing but the options. The numbers in the names go on from those of earlier calls.
func (n *Nodes) Create(ctx context.Context, options NodeOptions) ([]string, error) {
	if options.Count == 0 {
		return nil, nil
	}
	client, err := n.client()
	if err != nil {
		return nil, fmt.Errorf("creating nodes: %w", err)
	}
	n.mu.Lock()
	first := n.made
	n.made += options.Count
	var made []*corev1.Node
	var names []string
	for i := range options.Count {
		node := newNode(options, first+i)
		made, names = append(made, node), append(names, node.Name)
	}
	n.names = append(n.names, names...)
	n.mu.Unlock()

	byName := make(map[string]*corev1.Node, len(made))
	for _, node := range made {
		byName[node.Name] = node
	}
	taints, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": options.Taints}})
	if err != nil {
		return nil, fmt.Errorf("creating nodes: %w", err)
	}
	err = n.each(ctx, names, func(ctx context.Context, name string) error {
		_, err := client.CoreV1().Nodes().Create(ctx, byName[name], metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) { // it may, after an answer that was lost
			return err
		}
		// Admission has added the taint not-ready, which keeps DaemonSet pods away and which the node
		// lifecycle controller would remove at its own rate, a thousand nodes in minutes.
		node, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, taints, metav1.PatchOptions{})
		if err == nil && n.cluster.leases != nil {
			n.cluster.leases.add(node)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating nodes: %w", err)
	}
	return names, n.WaitReady(ctx, names...)
}

// Delete deletes nodes, as when machines are given back. Their names are not used again.
func (n *Nodes) Delete(ctx context.Context, names ...string) error {
	client, err := n.client()
	if err != nil {
		return fmt.Errorf("deleting nodes: %w", err)
	}
	err = n.each(ctx, names, func(ctx context.Context, name string) error {
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deleting nodes: %w", err)
	}
	if n.cluster.leases != nil {
		n.cluster.leases.remove(names...)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = slices.DeleteFunc(n.names, func(name string) bool { return slices.Contains(names, name) })
	return nil
}

func newNode(options NodeOptions, number int) *corev1.Node {
	prefix := options.Prefix
	if prefix == "" {
		prefix = "node-"
	}
	zones := options.Zones
	if len(zones) == 0 {
		zones = []string{"zone-a"}
	}
	name := fmt.Sprintf("%s%04d", prefix, number)
	labels := map[string]string{
		corev1.LabelHostname:     name,
		corev1.LabelOSStable:     "linux",
		corev1.LabelArchStable:   "amd64",
		corev1.LabelTopologyZone: zones[number%len(zones)],
		AliveLabel:               "true",
	}
	maps.Copy(labels, options.Labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("500"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: options.Taints},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// Kill makes nodes die, one by one. It returns when kwok has been told; a renewal under way at that
// moment may still arrive.
func (n *Nodes) Kill(ctx context.Context, names ...string) error {
	if err := n.setAlive(ctx, nil, names); err != nil {
		return fmt.Errorf("killing nodes: %w", err)
	}
	return nil
}

// Revive makes dead nodes live again. It does not wait until they are Ready, see WaitReady.
func (n *Nodes) Revive(ctx context.Context, names ...string) error {
	alive := "true"
	if err := n.setAlive(ctx, &alive, names); err != nil {
		return fmt.Errorf("reviving nodes: %w", err)
	}
	return nil
}

// KillAll makes every node die at once, without a single request: kwok is paused.
func (n *Nodes) KillAll() error {
	if n.cluster.leases != nil {
		n.cluster.leases.pause(true)
	}
	return n.cluster.kwok.Pause()
}

// ReviveAll undoes KillAll. Nodes that died by Kill stay dead.
func (n *Nodes) ReviveAll() error {
	if n.cluster.leases != nil {
		n.cluster.leases.pause(false)
	}
	return n.cluster.kwok.Resume()
}

// setAlive changes the label that kwok selects nodes by; nil removes it.
func (n *Nodes) setAlive(ctx context.Context, value *string, names []string) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{AliveLabel: value}}})
	if err != nil {
		return err
	}
	return n.each(ctx, names, func(ctx context.Context, name string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil && n.cluster.leases != nil {
			n.cluster.leases.setAlive(name, value != nil)
		}
		return err
	})
}

// WaitReady waits until the nodes' Ready condition is True.
func (n *Nodes) WaitReady(ctx context.Context, names ...string) error {
	return n.wait(ctx, corev1.ConditionTrue, names)
}

// WaitUnknown waits until the node lifecycle controller has set the nodes' Ready condition to Unknown.
func (n *Nodes) WaitUnknown(ctx context.Context, names ...string) error {
	return n.wait(ctx, corev1.ConditionUnknown, names)
}

func (n *Nodes) wait(ctx context.Context, want corev1.ConditionStatus, names []string) error {
	client, err := n.client()
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w", err)
	}
	missing := make(map[string]bool, len(names))
	for _, name := range names {
		missing[name] = true
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	list := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, o)
		},
	}, client)
	_, err = watchtools.UntilWithSync(ctx, list, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		if node, ok := event.Object.(*corev1.Node); ok && readiness(node) == want {
			delete(missing, node.Name)
		}
		return len(missing) == 0, nil
	})
	if err != nil && len(missing) > 0 {
		some := slices.Sorted(maps.Keys(missing))
		return fmt.Errorf("waiting for nodes to be Ready=%s: %d of %d are not, %s among them: %w",
			want, len(missing), len(names), some[0], err)
	}
	return nil
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func (n *Nodes) each(ctx context.Context, names []string, do func(context.Context, string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(nodeWorkers)
	for _, name := range names {
		g.Go(func() error {
			err := retry(ctx, passingNodeError, func() error { return do(ctx, name) })
			if err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// passingNodeError is true for the answers of an apiserver that is not quite up.
func passingNodeError(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}
