// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// sampleName is the DaemonSet's name, in the namespace default.
const sampleName = "sample"

var sampleLabels = map[string]string{"app": sampleName}

const pollInterval = 100 * time.Millisecond

// objects watches what the display counts.
type objects struct {
	client    kubernetes.Interface
	factories []informers.SharedInformerFactory
	nodes     corelisters.NodeLister
	sets      appslisters.DaemonSetNamespaceLister
	pods      corelisters.PodLister
}

func newObjects(c *controlplane.Cluster) (*objects, error) {
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("admin client: %w", err)
	}
	all := informers.NewSharedInformerFactory(client, 0)
	sample := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.FormatLabels(sampleLabels)
		}))
	// Lister asks for the informer, so that the factory will start it.
	return &objects{
		client:    client,
		factories: []informers.SharedInformerFactory{all, sample},
		nodes:     all.Core().V1().Nodes().Lister(),
		sets:      sample.Apps().V1().DaemonSets().Lister().DaemonSets(metav1.NamespaceDefault),
		pods:      sample.Core().V1().Pods().Lister(),
	}, nil
}

// run watches until the context ends.
func (o *objects) run(ctx context.Context) {
	for _, f := range o.factories {
		f.StartWithContext(ctx)
	}
	<-ctx.Done()
	for _, f := range o.factories {
		f.Shutdown()
	}
}

// observe counts again.
func (l *lab) observe() {
	objects := l.objects.Load()
	if objects == nil {
		return
	}
	ready, sample := objects.count()
	l.state.update(func(s *Snapshot) { s.NodesReady, s.DaemonSet = ready, sample })
}

// count reads the caches, whose listers have no errors to give.
func (o *objects) count() (nodesReady int, sample DaemonSet) {
	nodes, _ := o.nodes.List(labels.Everything())
	for _, node := range nodes {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			nodesReady++
		}
	}
	// The DaemonSet's status comes at the end of a pass over all nodes; its pods are there before.
	pods, _ := o.pods.List(labels.Everything())
	for _, pod := range pods {
		sample.Current++
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			sample.Ready++
		}
	}
	if ds, err := o.sets.Get(sampleName); err == nil && ds.Status.ObservedGeneration > 0 {
		sample.Counted, sample.Desired = true, int(ds.Status.DesiredNumberScheduled)
	}
	return nodesReady, sample
}

// runSample creates the DaemonSet and waits until it runs on every node.
func (o *objects) runSample(ctx context.Context, nodes int) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		// No pod can be created before the namespace has its service account.
		_, err := o.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for service account default/default: %w", err)
	}
	_, err = o.client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: sampleName, Labels: sampleLabels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: sampleLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: sampleLabels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/sample"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating DaemonSet default/%s: %w", sampleName, err)
	}
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		ready, sample := o.count()
		return ready >= nodes && sample.Counted && sample.Ready >= nodes && sample.Desired >= nodes, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for DaemonSet default/%s on %d nodes: %w", sampleName, nodes, err)
	}
	return nil
}
