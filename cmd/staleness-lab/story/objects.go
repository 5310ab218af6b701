// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

// labTaint is the taint that stories put on nodes.
var labTaint = corev1.Taint{Key: "lab.fresh-kcm.io/maintenance", Effect: corev1.TaintEffectNoExecute}

// Taint puts a taint on a node and returns the node's resource version then.
func (r *Rig) Taint(ctx context.Context, node string, taint corev1.Taint) (string, error) {
	rv, err := r.changeTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, taint)
	})
	if err != nil {
		return "", fmt.Errorf("tainting node %s: %w", node, err)
	}
	return rv, nil
}

// Untaint takes a taint off a node and returns the node's resource version then.
func (r *Rig) Untaint(ctx context.Context, node string, taint corev1.Taint) (string, error) {
	rv, err := r.changeTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	})
	if err != nil {
		return "", fmt.Errorf("removing the taint of node %s: %w", node, err)
	}
	return rv, nil
}

func (r *Rig) changeTaints(ctx context.Context, name string, change func([]corev1.Taint) []corev1.Taint) (rv string, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := r.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = change(node.Spec.Taints)
		node, err = r.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		if err == nil {
			rv = node.ResourceVersion
		}
		return err
	})
	return rv, err
}

// runPods creates pods without an owner, so that one that is deleted is lost, which tolerate the taint for
// a time, and waits until they run and the kube-controller-manager knows it. It returns their names.
func (e *evictionRun) runPods(ctx context.Context, prefix string, count int, toleration time.Duration) ([]string, error) {
	seconds := int64(toleration.Seconds())
	no := false
	var names []string
	last := ""
	for i := range count {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", prefix, i), Namespace: metav1.NamespaceDefault},
			Spec: corev1.PodSpec{
				NodeName:                     e.node,
				AutomountServiceAccountToken: &no,
				Containers:                   []corev1.Container{{Name: "main", Image: "registry.invalid/sample"}},
				Tolerations: []corev1.Toleration{{
					Key: labTaint.Key, Operator: corev1.TolerationOpExists, Effect: labTaint.Effect, TolerationSeconds: &seconds,
				}},
			},
		}
		created, err := e.rig.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		names, last = append(names, pod.Namespace+"/"+pod.Name), created.ResourceVersion
	}
	err := faultrig.Wait(ctx, time.Minute, fmt.Sprintf("%d pods to run on %s", count, e.node), func() (bool, error) {
		return e.truth.Running(names) == count, nil
	})
	if err != nil {
		return nil, err
	}
	return names, e.rig.WaitTold(ctx, corev1.Resource("pods"), last)
}
