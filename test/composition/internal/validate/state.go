// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// state is how an owner stands at the server.
type state struct {
	gone bool
	// told says that its status is that of its pods.
	told bool
	// done says besides that the pods are those that its spec asks for, and ready.
	done bool
	// excess says that it has pods that its spec does not ask for, and nobody has deleted them yet.
	excess bool
	// surplus are the pods of which a controller with a perfect cache might delete one.
	surplus map[string]bool
	// tooMany reports, of a ReplicaSet or ReplicationController, whether there would be a surplus with so many pods more.
	tooMany func(more int) bool
}

// stateOf works out how an owner stands.
func stateOf(truth model.Truth, o model.Owner) state {
	object := truth.Get(traffic.Kinds[o.Kind], o.Namespace, o.Name)
	if object == nil {
		return state{gone: true}
	}
	var pods []*corev1.Pod
	if o.Kind != "Deployment" {
		for _, x := range truth.List(model.Pods) {
			if ref := metav1.GetControllerOfNoCopy(x); ref != nil && ref.UID == object.GetUID() {
				pods = append(pods, x.(*corev1.Pod))
			}
		}
	}
	seen := false
	var s state
	switch x := object.(type) {
	case *appsv1.ReplicaSet:
		seen = x.Status.ObservedGeneration == x.Generation
		s = replicas(pods, *x.Spec.Replicas, x.Status.Replicas, x.Status.ReadyReplicas)
	case *appsv1.Deployment:
		seen = x.Status.ObservedGeneration == x.Generation
		s = revisions(truth, o, x)
	case *corev1.ReplicationController:
		seen = x.Status.ObservedGeneration == x.Generation
		s = replicas(pods, *x.Spec.Replicas, x.Status.Replicas, x.Status.ReadyReplicas)
	case *appsv1.DaemonSet:
		seen = x.Status.ObservedGeneration == x.Generation
		s = daemons(truth, pods, x)
	case *appsv1.StatefulSet:
		seen = x.Status.ObservedGeneration == x.Generation
		s = ordinals(pods, x)
	case *batchv1.Job:
		seen = true
		s = jobs(pods, x)
	}
	s.told = s.told && seen
	s.done = s.done && s.told
	return s
}

// How the digest of a Job begins that has no conditions, and of one that is complete.
const noConditions, complete = "conditions:", noConditions + " SuccessCriteriaMet Complete"

// allAvailable is how the digest of an owner begins whose status says that all its pods are available, and, of a DaemonSet or a Deployment, have the template.
const allAvailable = "all available: "

// told is a status, and whether it has so many pods as there are to be available.
func told(want, available int32, status string) string {
	if available == want {
		return allAvailable + status
	}
	return "not " + allAvailable + status
}

// digest is what of an owner, its pods and its volume claims does not depend on when and where they were made.
func digest(truth model.Truth, o model.Owner) string {
	var lines []string
	switch x := truth.Get(traffic.Kinds[o.Kind], o.Namespace, o.Name).(type) {
	case *appsv1.ReplicaSet:
		lines = append(lines, told(*x.Spec.Replicas, x.Status.AvailableReplicas, x.Status.String()))
	case *appsv1.Deployment:
		lines = append(lines, told(*x.Spec.Replicas, min(x.Status.UpdatedReplicas, x.Status.AvailableReplicas), fmt.Sprint("replicas ", x.Status.Replicas, ", updated ", x.Status.UpdatedReplicas, ", available ", x.Status.AvailableReplicas, ", observed ", x.Status.ObservedGeneration)))
		for _, rs := range truth.Owned(model.ReplicaSets, o) {
			for _, p := range podsOf(truth, rs) {
				if active(p) {
					lines = append(lines, fmt.Sprintf("pod with %s, ready %v", p.Spec.Containers[0].Image, ready(p)))
				}
			}
		}
	case *corev1.ReplicationController:
		lines = append(lines, told(*x.Spec.Replicas, x.Status.AvailableReplicas, x.Status.String()))
	case *appsv1.DaemonSet:
		lines = append(lines, told(x.Status.DesiredNumberScheduled, min(x.Status.UpdatedNumberScheduled, x.Status.NumberAvailable), x.Status.String()))
	case *appsv1.StatefulSet:
		lines = append(lines, told(*x.Spec.Replicas, x.Status.AvailableReplicas, x.Status.String()))
	case *batchv1.Job:
		lines = append(lines, noConditions)
		for _, c := range x.Status.Conditions {
			if c.Type != batchv1.JobSuspended { // It may be done before it is.
				lines[0] += " " + string(c.Type)
			}
		}
		if lines[0] == complete { // How many have succeeded when it fails depends on when that is.
			lines = append(lines, fmt.Sprint("succeeded ", x.Status.Succeeded))
		}
		return strings.Join(lines, "\n") // It may be at any of its pods.
	}
	for _, x := range truth.List(model.Pods) {
		ref, p := metav1.GetControllerOfNoCopy(x), x.(*corev1.Pod)
		if ref == nil || ref.Name != o.Name || ref.Kind != o.Kind || !active(p) {
			continue
		}
		line := fmt.Sprintf("pod with %s, ready %v", p.Spec.Containers[0].Image, ready(p))
		switch o.Kind {
		case "DaemonSet":
			line += " on " + p.Spec.NodeName
		case "StatefulSet":
			line += " named " + p.Name
		}
		lines = append(lines, line)
	}
	for _, x := range truth.List(model.Claims) {
		if o.Kind == "StatefulSet" && strings.HasPrefix(x.GetName(), "data-"+o.Name+"-") {
			lines = append(lines, "claim "+x.GetName())
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

func active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func ready(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && podutil.IsPodReady(p)
}

func replicas(pods []*corev1.Pod, want, told, toldReady int32) state {
	s := state{surplus: map[string]bool{}}
	var n, r int32
	for _, p := range pods {
		if active(p) {
			n++
			if ready(p) {
				r++
			}
		}
	}
	for _, p := range pods {
		s.surplus[p.Name] = n > want || !active(p)
	}
	s.told = told == n && toldReady == r
	s.done = n == want && r == want
	s.excess = n > want
	s.tooMany = func(more int) bool { return int(n)+more > int(want) }
	return s
}

// podsOf are the pods of a ReplicaSet.
func podsOf(truth model.Truth, rs model.Object) (pods []*corev1.Pod) {
	of := model.Owner{Kind: "ReplicaSet"}
	of.Namespace, of.Name = rs.GetNamespace(), rs.GetName()
	for _, x := range truth.Owned(model.Pods, of) {
		pods = append(pods, x.(*corev1.Pod))
	}
	return pods
}

// revisions is how a Deployment stands. Its surplus pods are those of its ReplicaSets.
func revisions(truth model.Truth, o model.Owner, d *appsv1.Deployment) state {
	s := state{surplus: map[string]bool{}}
	var n, r, good int32
	for _, x := range truth.Owned(model.ReplicaSets, o) {
		rs := x.(*appsv1.ReplicaSet)
		pods := podsOf(truth, rs)
		maps.Copy(s.surplus, replicas(pods, *rs.Spec.Replicas, 0, 0).surplus)
		for _, p := range pods {
			if !active(p) {
				continue
			}
			n++
			if ready(p) {
				r++
			}
			if ready(p) && p.Spec.Containers[0].Image == d.Spec.Template.Spec.Containers[0].Image {
				good++
			}
		}
	}
	s.told = d.Status.Replicas == n && d.Status.ReadyReplicas == r
	s.done = n == *d.Spec.Replicas && good == n
	surge := traffic.Surge
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil {
		surge = rolling.MaxSurge.IntValue()
	}
	s.excess = int(n) > int(*d.Spec.Replicas)+surge
	return s
}

// shouldRun says that a DaemonSet's pods belong on a node.
func shouldRun(ds *appsv1.DaemonSet, n *corev1.Node) bool {
	if _, unwanted := n.Labels[traffic.Unwanted(ds.Name)]; unwanted {
		return false
	}
	for key, value := range ds.Spec.Template.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == traffic.TroubleTaint.Key || t.Key == corev1.TaintNodeOutOfService
	})
}

// target is the node that a DaemonSet's pod is for.
func target(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil {
		return p.Spec.NodeName
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func daemons(truth model.Truth, pods []*corev1.Pod, ds *appsv1.DaemonSet) state {
	s := state{done: true, surplus: map[string]bool{}}
	image := ds.Spec.Template.Spec.Containers[0].Image
	current := func(p *corev1.Pod) bool {
		return ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || p.Spec.Containers[0].Image == image
	}
	var toldReady int32
	for _, x := range truth.List(model.Nodes) {
		n := x.(*corev1.Node)
		should := shouldRun(ds, n)
		here, good, isReady := 0, 0, false
		for _, p := range pods {
			if target(p) != n.Name {
				continue
			}
			if active(p) {
				here++
			}
			isReady = isReady || ready(p)
			if active(p) && ready(p) && current(p) {
				good++
			}
			if !active(p) || !should || !current(p) {
				s.surplus[p.Name] = true
			}
		}
		if here > 1 {
			for _, p := range pods {
				if target(p) == n.Name {
					s.surplus[p.Name] = true
				}
			}
		}
		if should && isReady {
			toldReady++
		}
		s.excess = s.excess || here > 1 || here > 0 && !should
		if should && (here != 1 || good != 1) || !should && here != 0 {
			s.done = false
		}
	}
	for _, p := range pods {
		if truth.Get(model.Nodes, "", target(p)) == nil {
			s.surplus[p.Name] = true
		}
	}
	s.told = ds.Status.NumberReady == toldReady
	return s
}

func ordinals(pods []*corev1.Pod, set *appsv1.StatefulSet) state {
	s := state{surplus: map[string]bool{}}
	image, rolling := set.Spec.Template.Spec.Containers[0].Image, set.Spec.UpdateStrategy.RollingUpdate
	current := func(p *corev1.Pod) bool {
		return rolling == nil || ordinal(p) < int(*rolling.Partition) || p.Spec.Containers[0].Image == image
	}
	var n, toldReady, good int32
	for _, p := range pods {
		n++
		if ready(p) {
			toldReady++
		}
		if ready(p) && active(p) && current(p) {
			good++
		}
		s.surplus[p.Name] = !active(p) || !current(p) || int32(ordinal(p)) >= *set.Spec.Replicas
		s.excess = s.excess || active(p) && int32(ordinal(p)) >= *set.Spec.Replicas
	}
	s.told = set.Status.ReadyReplicas == toldReady
	s.done = n == *set.Spec.Replicas && good == n
	return s
}

func ordinal(p *corev1.Pod) int {
	n, at := 0, 1
	for i := len(p.Name) - 1; i >= 0 && p.Name[i] != '-'; i-- {
		n, at = n+int(p.Name[i]-'0')*at, at*10
	}
	return n
}

func jobs(pods []*corev1.Pod, job *batchv1.Job) state {
	s := state{surplus: map[string]bool{}}
	complete := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed })
	var n, r, failed int32
	for _, p := range pods {
		// One that is deleted before it has succeeded has failed.
		fails := p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
		if fails && slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
			failed++ // It is not counted yet.
		}
		if active(p) {
			n++
			if ready(p) {
				r++
			}
		}
	}
	paused, want := *job.Spec.Suspend, max(0, min(*job.Spec.Parallelism, *job.Spec.Completions-job.Status.Succeeded))
	if paused {
		want = 0
	}
	deadline, start := job.Spec.ActiveDeadlineSeconds, job.Status.StartTime
	late := deadline != nil && start != nil && time.Since(start.Time) >= time.Duration(*deadline)*time.Second
	for _, p := range pods {
		s.surplus[p.Name] = !active(p) || complete || paused || late || job.Status.Failed+failed > *job.Spec.BackoffLimit || n > *job.Spec.Parallelism || n+job.Status.Succeeded > *job.Spec.Completions
	}
	s.excess = n > *job.Spec.Parallelism || (complete || paused) && n > 0
	s.told = job.Status.Active == n && (job.Status.Ready == nil || *job.Status.Ready == r)
	s.done = complete || n == r && n == want
	return s
}
