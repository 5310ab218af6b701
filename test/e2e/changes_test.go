// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// changing is for how long somebody goes on with something, changeEvery how often.
	changing    = 20 * time.Second
	changeEvery = 500 * time.Millisecond
	// changesOfDeployment is how many follow one another, each as soon as the last one is seen to.
	changesOfDeployment = 12
	changed             = "deployment-00"
	// Names of histories.
	busy             = "busy"
	deletedInRollout = "deleted-in-rollout"
)

// changes are what somebody does to objects that are in nobody's way, the first of them for as long as all lasts.
func changes(lasts time.Duration) []trouble {
	replicas := int32(6)
	return []trouble{
		// What writes nothing lets resource versions go on, so that every other object's lies far behind.
		{name: busy, owners: workload.Kinds{ReplicaSets: 1, ReplicationControllers: 1, StatefulSets: 1, DaemonSets: 1, Jobs: 1, Replicas: 1, Node: "node-0003"},
			happens: func(ctx context.Context, r *run, namespace string) error {
				return repeatedly(ctx, lasts, func(i int) error { return annotateAll(ctx, r, namespace, fmt.Sprint(i)) })
			}},
		{name: "pods-unready", owners: workload.Kinds{ReplicaSets: 1, Replicas: 2}, template: unscheduled, reaction: "replicasets",
			happens: func(ctx context.Context, r *run, namespace string) error {
				return podsUnready(ctx, r, namespace, lasts)
			}},
		loaded("rollout", deploymentLoad(10, 5)),
		loaded("jobs", jobLoad(20, 2)),
		loaded("daemonset", daemonSetLoad(troubledNodes, 3)),
		// The new pods never become ready, and each change comes as soon as all pods are there that the last one has made: how far a rollout gets in half a second
		// is chance.
		{name: "image-flipped", happens: func(ctx context.Context, r *run, namespace string) error {
			flip := func(i int) []byte {
				return fmt.Appendf(nil, `{"spec":{"template":{"spec":{"schedulerName":%q,"containers":[{"name":"main","image":"%s:%d"}]}}}}`, noScheduler, workload.Image, i%2)
			}
			stuck := func(d *appsv1.Deployment) bool {
				surge, unavailable := (replicas+3)/4, replicas/4 // a quarter each: the strategy's defaults
				return d.Status.UpdatedReplicas == surge+unavailable && d.Status.Replicas == replicas+surge && d.Status.ReadyReplicas == replicas-unavailable
			}
			return changeDeployment(ctx, r, namespace, replicas, flip, stuck, []byte(`{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}`))
		}},
		{name: "scaled", happens: func(ctx context.Context, r *run, namespace string) error {
			scale := func(i int) []byte { return fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas*int32(1+i%2)) }
			return changeDeployment(ctx, r, namespace, replicas, scale, func(d *appsv1.Deployment) bool { return d.Status.Replicas == *d.Spec.Replicas }, nil)
		}},
		{name: "pods-deleted", owners: workload.Kinds{ReplicaSets: 1, ReplicationControllers: 1, StatefulSets: 1, DaemonSets: 1, Replicas: replicas, Node: "node-0001"},
			happens: func(ctx context.Context, r *run, namespace string) error {
				err := repeatedly(ctx, changing, func(i int) error {
					list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
					if err != nil || len(list.Items) == 0 {
						return err
					}
					return ignoreNotFound(r.Client.CoreV1().Pods(namespace).Delete(ctx, list.Items[i%len(list.Items)].Name, metav1.DeleteOptions{}))
				})
				if err != nil {
					return err
				}
				return podsReady(ctx, r, namespace, 3*int(replicas)+1, 0)
			}},
		{name: "never-ready", owners: workload.Kinds{StatefulSets: 3, Replicas: replicas}, template: unscheduled, happens: func(ctx context.Context, r *run, namespace string) error {
			return rig.Wait(ctx, patience, "the first pods", func() (bool, error) {
				list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
				return err == nil && len(list.Items) == 3, err
			})
		}},
		{name: "job-fails", owners: workload.Kinds{Jobs: 3, Replicas: 1}, template: unscheduled, happens: podsFail},
		{name: "recreated", happens: func(ctx context.Context, r *run, namespace string) error {
			// Not StatefulSets: on a slow machine kwok, which deletes pods by name, takes a new pod for the old one.
			kinds := workload.Kinds{ReplicaSets: 3, DaemonSets: 1, Replicas: 3, Node: "node-0002"}
			for range 4 {
				if err := kinds.Create(ctx, r.Client, namespace, nil); err != nil {
					return err
				}
				if err := podsReady(ctx, r, namespace, 10, 0); err != nil {
					return err
				}
				if err := removeAll(ctx, r, namespace, kinds); err != nil {
					return err
				}
			}
			return podsReady(ctx, r, namespace, 0, 0)
		}},
		{name: deletedInRollout, happens: func(ctx context.Context, r *run, namespace string) error {
			if err := oneDeployment(ctx, r, namespace, replicas); err != nil {
				return err
			}
			if _, err := r.Client.AppsV1().Deployments(namespace).Patch(ctx, changed, types.StrategicMergePatchType, imagePatch("next"), metav1.PatchOptions{}); err != nil {
				return err
			}
			// How far a rollout gets by itself until the namespace is deleted is chance.
			if err := rig.Wait(ctx, patience, "half of the new pods to be made", func() (bool, error) {
				list, err := r.Client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				return slices.ContainsFunc(list.Items, func(rs appsv1.ReplicaSet) bool {
					return strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":next") && rs.Status.Replicas >= replicas/2
				}), nil
			}); err != nil {
				return err
			}
			if err := r.Client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
				return err
			}
			return rig.Wait(ctx, patience, "the namespace to be gone", func() (bool, error) {
				_, err := r.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
				return apierrors.IsNotFound(err), ignoreNotFound(err)
			})
		}},
	}
}

// slowAdmission are changes beside objects of every kind whose pods take webhook.Delay to be admitted.
func slowAdmission(lasts time.Duration) []trouble {
	return append(changes(lasts), trouble{name: "webhook-slow", owners: someOfEach, happens: func(ctx context.Context, r *run, namespace string) error {
		o := someOfEach
		return podsReady(ctx, r, namespace, int(o.Replicas)*(o.ReplicaSets+o.ReplicationControllers+o.StatefulSets)+o.DaemonSets, o.Jobs*int(o.Replicas))
	}})
}

// loaded has a load be done beside the troubles.
func loaded(name string, l load) trouble {
	return trouble{name: name, happens: func(ctx context.Context, r *run, namespace string) error {
		l.run(ctx, r, namespace)
		return nil
	}}
}

func oneDeployment(ctx context.Context, r *run, namespace string, replicas int32) error {
	d := workload.Deployment(changed, replicas)
	d.Namespace = namespace
	if _, err := r.Client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	r.deploymentsDone(ctx, namespace, 1)
	return nil
}

// changeDeployment makes a Deployment and then a change after the other, each as soon as the status of the Deployment says that the controller has got there with the
// one before. Then it makes the last one, unless that is nil, and waits for the rollout.
func changeDeployment(ctx context.Context, r *run, namespace string, replicas int32, change func(i int) []byte, there func(*appsv1.Deployment) bool, last []byte) error {
	if err := oneDeployment(ctx, r, namespace, replicas); err != nil {
		return err
	}
	patch := func(patch []byte) error {
		_, err := r.Client.AppsV1().Deployments(namespace).Patch(ctx, changed, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for i := range changesOfDeployment {
		if err := patch(change(i)); err != nil {
			return err
		}
		if err := rig.Wait(ctx, patience, fmt.Sprintf("change %d of the Deployment in %s", i, namespace), func() (bool, error) {
			d, err := r.Client.AppsV1().Deployments(namespace).Get(ctx, changed, metav1.GetOptions{})
			return err == nil && d.Status.ObservedGeneration == d.Generation && there(d), err
		}); err != nil {
			return err
		}
	}
	if last != nil {
		if err := patch(last); err != nil {
			return err
		}
	}
	r.deploymentsDone(ctx, namespace, 1)
	return nil
}

// annotateAll changes what nobody looks at, on the first object of each kind.
func annotateAll(ctx context.Context, r *run, namespace, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.fresh-kcm.io/i":%q}}}`, value)
	options := metav1.PatchOptions{}
	_, rs := r.Client.AppsV1().ReplicaSets(namespace).Patch(ctx, "replicaset-00", types.MergePatchType, patch, options)
	_, rc := r.Client.CoreV1().ReplicationControllers(namespace).Patch(ctx, "controller-00", types.MergePatchType, patch, options)
	_, sts := r.Client.AppsV1().StatefulSets(namespace).Patch(ctx, "statefulset-00", types.MergePatchType, patch, options)
	_, ds := r.Client.AppsV1().DaemonSets(namespace).Patch(ctx, "daemonset-00", types.MergePatchType, patch, options)
	_, job := r.Client.BatchV1().Jobs(namespace).Patch(ctx, "job-00", types.MergePatchType, patch, options)
	return errors.Join(rs, rc, sts, ds, job)
}

// podsUnready has one of a ReplicaSet's pods turn Ready and unready again and again.
func podsUnready(ctx context.Context, r *run, namespace string, lasts time.Duration) error {
	var names []string
	err := rig.Wait(ctx, patience, "the pods", func() (bool, error) {
		list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			return false, err
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return repeatedly(ctx, lasts, func(i int) error {
		status := [2]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[i%2]
		patch := fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, status)
		_, err := r.Client.CoreV1().Pods(namespace).Patch(ctx, names[0], types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// repeatedly does something as often as it can be done in a time.
func repeatedly(ctx context.Context, lasts time.Duration, do func(i int) error) error {
	ticker := time.NewTicker(changeEvery)
	defer ticker.Stop()
	for i := range int(lasts / changeEvery) {
		if err := do(i); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// podsReady waits until there are so many pods that are Ready, so many that are complete, and no others.
func podsReady(ctx context.Context, r *run, namespace string, wantReady, wantComplete int) error {
	return rig.Wait(ctx, patience, fmt.Sprintf("%d pods in %s", wantReady+wantComplete, namespace), func() (bool, error) {
		list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		var gotReady, gotComplete int
		for i := range list.Items {
			switch pod := &list.Items[i]; {
			case ready(pod):
				gotReady++
			case pod.Status.Phase == corev1.PodSucceeded:
				gotComplete++
			}
		}
		return gotReady == wantReady && gotComplete == wantComplete && len(list.Items) == wantReady+wantComplete, nil
	})
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// noScheduler is the scheduler of pods that are to stay Pending.
const noScheduler = "nobody"

// unscheduled leaves pods Pending.
func unscheduled(t *corev1.PodTemplateSpec) {
	t.Spec.SchedulerName = noScheduler
	delete(t.Labels, controlplane.CompleteLabel)
}

// podsFail has the pods of Jobs fail, as soon as they are there, three times each.
func podsFail(ctx context.Context, r *run, namespace string) error {
	jobs := r.Client.BatchV1().Jobs(namespace)
	failed := 0
	return rig.Wait(ctx, patience, "the pods of Jobs to fail", func() (bool, error) {
		list, err := r.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase != corev1.PodPending {
				continue
			}
			patch := []byte(`{"status":{"phase":"Failed"}}`)
			if _, err := r.Client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); ignoreNotFound(err) != nil {
				return false, err
			}
		}
		all, err := jobs.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		failed = 0
		for i := range all.Items {
			failed += int(all.Items[i].Status.Failed)
		}
		return failed >= 2*len(all.Items), nil // after 10 s, the next would come after 20 s
	})
}

// removeAll deletes the ReplicaSets and DaemonSets that Kinds made, and waits until all its pods are gone.
func removeAll(ctx context.Context, r *run, namespace string, kinds workload.Kinds) error {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	for i := range kinds.ReplicaSets {
		if err := r.Client.AppsV1().ReplicaSets(namespace).Delete(ctx, fmt.Sprintf("replicaset-%02d", i), options); err != nil {
			return err
		}
	}
	for i := range kinds.DaemonSets {
		if err := r.Client.AppsV1().DaemonSets(namespace).Delete(ctx, fmt.Sprintf("daemonset-%02d", i), options); err != nil {
			return err
		}
	}
	return podsReady(ctx, r, namespace, 0, 0)
}
