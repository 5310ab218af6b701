// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Service accounts of the controllers that make pods.
const (
	ReplicaSetAccount            = "replicaset-controller"
	ReplicationControllerAccount = "replication-controller"
	StatefulSetAccount           = "statefulset-controller"
	DaemonSetAccount             = "daemon-set-controller"
	JobAccount                   = "job-controller"
)

// ReplicaSet returns a ReplicaSet like Deployment's Deployment.
func ReplicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	d := Deployment(name, replicas)
	return &appsv1.ReplicaSet{
		ObjectMeta: d.ObjectMeta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}

// StatefulSet returns a StatefulSet like Deployment's Deployment, whose pods come one after the other.
func StatefulSet(name string, replicas int32) *appsv1.StatefulSet {
	d := Deployment(name, replicas)
	return &appsv1.StatefulSet{
		ObjectMeta: d.ObjectMeta,
		Spec:       appsv1.StatefulSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}

// ReplicationController returns a ReplicationController like Deployment's Deployment.
func ReplicationController(name string, replicas int32) *corev1.ReplicationController {
	d := Deployment(name, replicas)
	return &corev1.ReplicationController{
		ObjectMeta: d.ObjectMeta,
		Spec:       corev1.ReplicationControllerSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.MatchLabels, Template: &d.Spec.Template},
	}
}

// Kinds says how many objects there are of each kind that makes pods.
type Kinds struct {
	ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets, Jobs int
	// Replicas are the pods of each, but for a DaemonSet, which has one, on the node Node.
	Replicas int32
	Node     string
}

// Owners returns how many objects there are, by the service account of their controller.
func (k Kinds) Owners() map[string]int {
	return map[string]int{
		ReplicaSetAccount: k.ReplicaSets, ReplicationControllerAccount: k.ReplicationControllers, StatefulSetAccount: k.StatefulSets,
		DaemonSetAccount: k.DaemonSets, JobAccount: k.Jobs,
	}
}

// Create makes them in a namespace, with the pods' template changed unless change is nil.
func (k Kinds) Create(ctx context.Context, client kubernetes.Interface, namespace string, change func(*corev1.PodTemplateSpec)) error {
	if change == nil {
		change = func(*corev1.PodTemplateSpec) {}
	}
	options := metav1.CreateOptions{}
	for i := range k.ReplicaSets {
		o := ReplicaSet(numbered("replicaset", i), k.Replicas)
		o.Namespace = namespace
		change(&o.Spec.Template)
		if _, err := client.AppsV1().ReplicaSets(namespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	for i := range k.ReplicationControllers {
		o := ReplicationController(numbered("controller", i), k.Replicas)
		o.Namespace = namespace
		change(o.Spec.Template)
		if _, err := client.CoreV1().ReplicationControllers(namespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	for i := range k.StatefulSets {
		o := StatefulSet(numbered("statefulset", i), k.Replicas)
		o.Namespace = namespace
		change(&o.Spec.Template)
		if _, err := client.AppsV1().StatefulSets(namespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	for i := range k.DaemonSets {
		o := DaemonSet(numbered("daemonset", i), OnNode(k.Node))
		o.Namespace = namespace
		change(&o.Spec.Template)
		if _, err := client.AppsV1().DaemonSets(namespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	for i := range k.Jobs {
		o := Job(numbered("job", i), k.Replicas)
		o.Namespace = namespace
		change(&o.Spec.Template)
		if _, err := client.BatchV1().Jobs(namespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	return nil
}

func numbered(kind string, i int) string { return fmt.Sprintf("%s-%02d", kind, i) }
