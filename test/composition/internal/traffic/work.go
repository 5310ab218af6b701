// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// TroubleTaint is the taint that a step puts on a node.
var TroubleTaint = corev1.Taint{Key: "example.com/trouble", Effect: corev1.TaintEffectNoExecute}

// Do does what a step of everyday work says, and undoes it in time. It reports whether the step is one.
func (t *Traffic) Do(s schedule.Step) bool {
	undo := func(f func()) { t.After(s.For, f) }
	t.mu.Lock()
	owner := t.owners[s.Target]
	t.mu.Unlock()
	switch s.Action {
	case schedule.Scale:
		t.scale(owner, func(n *int32) { *n = int32(s.N) })
	case schedule.Roll:
		t.template(owner, fmt.Sprint("image:", s.At.Milliseconds()))
	case schedule.RollBack:
		t.template(owner, firstImage)
	case schedule.Pause:
		t.pause(owner, true)
		undo(func() { t.pause(owner, false) })
	case schedule.Flip:
		t.flip(owner, undo)
	case schedule.Unready:
		if pod := t.pod(owner, s.N); pod != nil {
			t.makeUnready(pod, 1)
			undo(func() { t.makeUnready(pod, -1) })
		}
	case schedule.Suspend:
		t.suspend(s.Target, true)
		undo(func() { t.suspend(s.Target, false) })
	case schedule.DeletePod:
		if pod := t.pod(owner, s.N); pod != nil {
			t.server.Delete(model.Pods, pod.Namespace, pod.Name, nil)
		}
	case schedule.Taint:
		name := t.nodes[s.N%len(t.nodes)].name
		t.taint(name, true)
		undo(func() { t.taint(name, false) })
	case schedule.Relabel:
		name := t.nodes[s.N%len(t.nodes)].name
		t.relabel(owner, name, true)
		if s.For > 0 {
			undo(func() { t.relabel(owner, name, false) })
		}
	case schedule.Flap:
		t.flap(owner, s.Delay, time.Now().Add(s.For), 0)
	case schedule.KillNode:
		n := t.nodes[s.N%len(t.nodes)]
		t.setDead(n, true)
		undo(func() { t.setDead(n, false) })
	case schedule.Clock:
		t.nodes[s.N%len(t.nodes)].offset.Add(int64(s.Delay))
	case schedule.Busy:
		end := time.Now().Add(s.For)
		t.busy(s.Target, time.Second/time.Duration(max(1, s.N)), end, 0)
	case schedule.FailPod:
		if pod := t.pod(owner, s.N); pod != nil {
			t.change(pod, func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Conditions = corev1.PodFailed, "Evicted", nil
			})
		}
	case schedule.Unlabel:
		if pod := t.pod(owner, s.N); pod != nil {
			t.change(pod, func(p *corev1.Pod) { p.Labels["app"] = "released" })
			undo(func() { t.change(pod, func(p *corev1.Pod) { p.Labels["app"] = owner.Name }) })
		}
	case schedule.Annotate:
		t.annotate(owner, time.Second/time.Duration(max(1, s.N)), time.Now().Add(s.For), 0)
	case schedule.Replace:
		if owner.Name != "" {
			t.Remove(owner)
			t.After(s.Delay, func() { t.Make(owner) })
		}
	default:
		return t.doForCronJob(s) || t.doForService(s) || t.doForTenant(s) || t.doForFamily(s) || t.doForClaimer(s) || t.doForAutoscaler(s) || t.doForVolume(s) || t.doForProtected(s)
	}
	return true
}

// scale changes the number of replicas of those that have one.
func (t *Traffic) scale(o schedule.Owner, change func(*int32)) {
	switch o.Kind {
	case "ReplicaSet":
		model.Change(t.server, model.ReplicaSets, namespaceOf(o), o.Name, func(x *appsv1.ReplicaSet) { change(x.Spec.Replicas) })
	case "Deployment":
		model.Change(t.server, model.Deployments, namespaceOf(o), o.Name, func(x *appsv1.Deployment) { change(x.Spec.Replicas) })
	case "ReplicationController":
		model.Change(t.server, model.RCs, namespaceOf(o), o.Name, func(x *corev1.ReplicationController) { change(x.Spec.Replicas) })
	case "StatefulSet":
		model.Change(t.server, model.StatefulSets, namespaceOf(o), o.Name, func(x *appsv1.StatefulSet) { change(x.Spec.Replicas) })
	case "Job":
		model.Change(t.server, model.Jobs, namespaceOf(o), o.Name, func(x *batchv1.Job) { change(x.Spec.Parallelism) })
	}
}

// template gives those that are rolled a new image.
func (t *Traffic) template(o schedule.Owner, image string) {
	switch o.Kind {
	case "DaemonSet":
		model.Change(t.server, model.DaemonSets, namespaceOf(o), o.Name, func(x *appsv1.DaemonSet) { x.Spec.Template.Spec.Containers[0].Image = image })
	case "Deployment":
		model.Change(t.server, model.Deployments, namespaceOf(o), o.Name, func(x *appsv1.Deployment) { x.Spec.Template.Spec.Containers[0].Image = image })
	case "StatefulSet":
		model.Change(t.server, model.StatefulSets, namespaceOf(o), o.Name, func(x *appsv1.StatefulSet) { x.Spec.Template.Spec.Containers[0].Image = image })
	}
}

// pause pauses a Deployment or suspends a Job, or has it go on.
func (t *Traffic) pause(o schedule.Owner, on bool) {
	switch o.Kind {
	case "Deployment":
		model.Change(t.server, model.Deployments, namespaceOf(o), o.Name, func(x *appsv1.Deployment) { x.Spec.Paused = on })
	case "Job":
		model.Change(t.server, model.Jobs, namespaceOf(o), o.Name, func(x *batchv1.Job) { x.Spec.Suspend = &on })
	}
}

// flip changes the spec, and back.
func (t *Traffic) flip(o schedule.Owner, undo func(func())) {
	if o.Kind == "DaemonSet" {
		set := func(selector map[string]string) {
			model.Change(t.server, model.DaemonSets, namespaceOf(o), o.Name, func(x *appsv1.DaemonSet) { x.Spec.Template.Spec.NodeSelector = selector })
		}
		set(map[string]string{"example.com/none": "true"})
		undo(func() { set(nil) })
		return
	}
	var was int32
	t.scale(o, func(n *int32) { was, *n = *n, max(*n, 1)-1 })
	undo(func() { t.scale(o, func(n *int32) { *n = was }) })
}

// pod is the nth running pod of an owner, if it has any. Those of a DaemonSet are taken in the order of their nodes: in which they are made is chance.
func (t *Traffic) pod(o schedule.Owner, n int) (found *corev1.Pod) {
	t.server.Look(func(truth model.Truth) {
		var pods []*corev1.Pod
		for _, object := range truth.List(model.Pods) {
			pod := object.(*corev1.Pod)
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && isOf(owner, o) && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				pods = append(pods, pod)
			}
		}
		if o.Kind == "DaemonSet" {
			slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
		}
		if len(pods) > 0 {
			found = pods[n%len(pods)]
		}
	})
	return found
}

// isOf says that a pod's controller is the owner, or a ReplicaSet of it.
func isOf(controller *metav1.OwnerReference, o schedule.Owner) bool {
	if o.Kind == "Deployment" {
		return controller.Kind == "ReplicaSet" && strings.HasPrefix(controller.Name, o.Name+"-")
	}
	return controller.Kind == o.Kind && controller.Name == o.Name
}

func (t *Traffic) taint(name string, on bool) { t.setTaint(name, TroubleTaint, on) }

func (t *Traffic) setTaint(name string, trouble corev1.Taint, on bool) {
	model.Change(t.server, model.Nodes, "", name, func(n *corev1.Node) {
		var kept []corev1.Taint
		for _, taint := range n.Spec.Taints {
			if taint.Key != trouble.Key {
				kept = append(kept, taint)
			}
		}
		if on {
			kept = append(kept, trouble)
		}
		n.Spec.Taints = kept
	})
}

// relabel gives a node the label that a DaemonSet does not want, or takes it away.
func (t *Traffic) relabel(o schedule.Owner, name string, on bool) {
	model.Change(t.server, model.Nodes, "", name, func(n *corev1.Node) {
		if delete(n.Labels, Unwanted(o.Name)); on {
			n.Labels[Unwanted(o.Name)] = "true"
		}
	})
}

// flap has one pod of an owner after the other turn unready, each for half of the period.
func (t *Traffic) flap(o schedule.Owner, period time.Duration, end time.Time, n int) {
	if time.Now().After(end) {
		return
	}
	if pod := t.pod(o, n); pod != nil {
		t.makeUnready(pod, 1)
		t.After(period/2, func() { t.makeUnready(pod, -1) })
	}
	t.After(period, func() { t.flap(o, period, end, n+1) })
}

// annotate changes an owner in every period, but for its spec.
func (t *Traffic) annotate(o schedule.Owner, period time.Duration, end time.Time, n int) {
	if o.Name == "" || time.Now().After(end) {
		return
	}
	model.Change(t.server, Kinds[o.Kind], namespaceOf(o), o.Name, func(x model.Object) {
		annotations := x.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["example.com/busy"] = fmt.Sprint(n)
		x.SetAnnotations(annotations)
	})
	t.After(period, func() { t.annotate(o, period, end, n+1) })
}

// busy changes an object of a resource in every period.
func (t *Traffic) busy(resource string, period time.Duration, end time.Time, n int) {
	if time.Now().After(end) {
		return
	}
	mark := func(meta *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(meta, "example.com/busy", fmt.Sprint(n)) }
	if resource == "nodes" {
		model.Change(t.server, model.Nodes, "", t.nodes[n%len(t.nodes)].name, func(o *corev1.Node) { mark(&o.ObjectMeta) })
	} else {
		model.Change(t.server, model.Widgets, Namespace, "widget-0", func(o *metav1.PartialObjectMetadata) { mark(&o.ObjectMeta) })
	}
	t.After(period, func() { t.busy(resource, period, end, n+1) })
}
