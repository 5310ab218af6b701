// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	upstreammetrics "k8s.io/kubernetes/pkg/controller/tainteviction/metrics"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	utilpod "k8s.io/kubernetes/pkg/util/pod"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// deletions is how often an eviction first tries to delete its pod, deletionPause how long it waits in between: as upstream's.
const (
	deletions     = 5
	deletionPause = 10 * time.Millisecond
)

// Evictor is what a TaintGuard needs of its controller.
type Evictor interface {
	// CachedNode is from the cache, LiveNode and LiveNodes, a page, from the server, by one request.
	CachedNode(name string) (*corev1.Node, error)
	LiveNode(ctx context.Context, name string) (*corev1.Node, error)
	LiveNodes(ctx context.Context, opts metav1.ListOptions) (*corev1.NodeList, error)
	// Tolerated is for how long the pod tolerates all the taints: 0 not at all, negative without limit.
	Tolerated(ctx context.Context, pod *corev1.Pod, taints []corev1.Taint) time.Duration
	// EvictPod deletes the pod that the server has now, and no other, if confirm returns nil for it, each
	// time that it is asked: before each write. It tries so many times.
	EvictPod(ctx context.Context, name types.NamespacedName, due time.Time, tries int, confirm func(*corev1.Pod) error) error
	// Evicting says that the pod is evicted.
	Evicting(name types.NamespacedName)
	// Cancelled says that the eviction was cancelled.
	Cancelled(name types.NamespacedName)
	// Recheck looks at the pods of the node, as at an event of the node.
	Recheck(node string)
}

// EvictorOf returns the Evictor of the controller that hands over its parts.
func EvictorOf(parts consistency.Evictor) Evictor { return evictor{parts} }

type evictor struct{ parts consistency.Evictor }

func (e evictor) CachedNode(name string) (*corev1.Node, error) { return e.parts.Nodes.Get(name) }

func (e evictor) LiveNode(ctx context.Context, name string) (*corev1.Node, error) {
	c := e.parts.Client.CoreV1()
	if r := livereads.Once(c.RESTClient()); r != nil {
		node := &corev1.Node{}
		return node, r.Resource("nodes").Name(name).Do(ctx).Into(node)
	}
	return c.Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (e evictor) LiveNodes(ctx context.Context, opts metav1.ListOptions) (*corev1.NodeList, error) {
	c := e.parts.Client.CoreV1()
	if r := livereads.Once(c.RESTClient()); r != nil {
		nodes := &corev1.NodeList{}
		return nodes, r.Resource("nodes").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Into(nodes)
	}
	return c.Nodes().List(ctx, opts)
}

func (e evictor) Tolerated(ctx context.Context, pod *corev1.Pod, taints []corev1.Taint) time.Duration {
	all, used := v1helper.GetMatchingTolerations(klog.FromContext(ctx), taints, pod.Spec.Tolerations)
	if !all {
		return 0
	}
	return e.parts.MinToleration(used)
}

func (e evictor) EvictPod(ctx context.Context, name types.NamespacedName, due time.Time, tries int, confirm func(*corev1.Pod) error) error {
	var refused error
	var err error
	for range tries {
		err = e.deletePod(ctx, name, func(pod *corev1.Pod) error {
			refused = confirm(pod)
			return refused
		})
		if err == nil {
			upstreammetrics.PodDeletionsTotal.Inc()
			upstreammetrics.PodDeletionsLatency.Observe(float64(time.Since(due) * time.Second))
		}
		if err == nil || refused != nil || apierrors.IsNotFound(err) {
			return err
		}
		pause := max(deletionPause, livereads.RetryAfter(err))
		if pause > minEvictionDelay {
			return err // The guard waits for that, and says so.
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// deletePod tries once to do what upstream's addConditionAndDeletePod does, for a pod that is confirmed, and by UID.
func (e evictor) deletePod(ctx context.Context, name types.NamespacedName, confirm func(*corev1.Pod) error) error {
	pods := e.parts.Client.CoreV1().Pods(name.Namespace)
	pod, err := pods.Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := confirm(pod); err != nil {
		return err
	}
	status := pod.Status.DeepCopy()
	updated := apipod.UpdatePodCondition(status, &corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		ObservedGeneration: apipod.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, corev1.DisruptionTarget),
		Status:             corev1.ConditionTrue,
		Reason:             "DeletionByTaintManager",
		Message:            "Taint manager: deleting due to NoExecute taint",
	})
	if updated {
		if _, _, _, err := utilpod.PatchPodStatus(ctx, e.parts.Client, pod.Namespace, pod.Name, pod.UID, pod.Status, *status); err != nil {
			return err
		}
		// The patch may have taken long.
		if err := confirm(pod); err != nil {
			return err
		}
	}
	opts := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	// client-go would send it again when the server asks to, ten times, whatever the pod and its node are by then.
	if c, ok := e.parts.Client.CoreV1().RESTClient().(*rest.RESTClient); ok && c != nil {
		return c.Delete().MaxRetries(0).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Body(&opts).Do(ctx).Error()
	}
	return pods.Delete(ctx, pod.Name, opts) // The client is a fake.
}

func (e evictor) Evicting(name types.NamespacedName)  { e.parts.Evicting(name) }
func (e evictor) Cancelled(name types.NamespacedName) { e.parts.Cancelled(name) }
func (e evictor) Recheck(node string)                 { e.parts.Recheck(node) }
