// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const daemonSetName = "daemonset"

// churnEvery is how long it is until the next node leaves.
const churnEvery = 2 * time.Second

// prepare has each controller do a little of its work once, and makes what must be there before the workload. The
// little stays, so that it is nobody's deletion.
func (t *turn) prepare(ctx context.Context) error {
	t.say("warming up")
	warmUp := []replicated{t.deployments()}
	if t.spec.Workload.StatefulSets != nil {
		warmUp = append(warmUp, t.statefulSets())
	}
	for _, of := range warmUp {
		if err := of.create(ctx, "warm-up-"+strings.ToLower(of.kind), 1); err != nil {
			return err
		}
	}
	little := workload.Kinds{DaemonSets: 1, Jobs: 1, Replicas: 1, Node: t.cluster.Nodes().Names()[0]}
	if err := little.Create(ctx, t.client, t.namespace, nil); err != nil {
		return err
	}
	for _, of := range warmUp {
		if err := of.done(ctx, 0); err != nil {
			return err
		}
	}
	if err := t.jobsDone(ctx, 0); err != nil {
		return err
	}
	if d := t.spec.Workload.DaemonSet; d != nil && d.Roll {
		return t.makeDaemonSet(ctx, *d)
	}
	return nil
}

// work does the workload and returns when its end state is reached.
func (t *turn) work(ctx context.Context) error {
	switch w := t.spec.Workload; {
	case w.Deployments != nil:
		return t.makeAndRoll(ctx, *w.Deployments, t.deployments())
	case w.StatefulSets != nil:
		return t.makeAndRoll(ctx, *w.StatefulSets, t.statefulSets())
	case w.Jobs != nil:
		return t.jobs(ctx, *w.Jobs)
	case w.DaemonSet != nil && w.DaemonSet.Roll:
		return t.rollDaemonSet(ctx, *w.DaemonSet)
	case w.DaemonSet != nil:
		return t.makeDaemonSet(ctx, *w.DaemonSet)
	case w.NodesDie != nil:
		return t.nodesDie(ctx, *w.NodesDie)
	case w.Handover != nil:
		return t.handover(ctx, *w.Handover)
	case w.Idle != nil:
		t.say("idle for %v", w.Idle.For.Duration)
		return faultrig.Sleep(ctx, w.Idle.For.Duration)
	case w.Stalls != nil:
		return t.stalls(ctx, *w.Stalls)
	}
	return fmt.Errorf("%s has no workload", t.spec.Name)
}

// replicated are the operations on one kind of objects that have replicas. done waits until so many are done, and that of the warm-up.
type replicated struct {
	kind   string
	create func(ctx context.Context, name string, replicas int32) error
	roll   func(ctx context.Context, name string) error
	done   func(ctx context.Context, count int) error
}

// makeAndRoll makes objects of one kind, and then rolls all.
func (t *turn) makeAndRoll(ctx context.Context, r spec.Replicated, of replicated) error {
	for _, step := range []struct {
		what string
		do   func(ctx context.Context, name string) error
	}{
		{"making", func(ctx context.Context, name string) error { return of.create(ctx, name, r.Replicas) }},
		{"rolling", of.roll},
	} {
		t.say("%s %d %s of %d pods", step.what, r.Count, of.kind, r.Replicas)
		for i := range r.Count {
			if err := step.do(ctx, fmt.Sprintf("measured-%03d", i)); err != nil {
				return err
			}
		}
		if err := of.done(ctx, r.Count); err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) deployments() replicated {
	object := func(name string, replicas int32) *appsv1.Deployment {
		d := workload.Deployment(name, replicas)
		d.Namespace = t.namespace
		return d
	}
	items := func(list *appsv1.DeploymentList) []appsv1.Deployment { return list.Items }
	return replicatedBy(t, "Deployments", t.client.AppsV1().Deployments(t.namespace), object, items, workload.DeploymentDone)
}

func (t *turn) statefulSets() replicated {
	object := func(name string, replicas int32) *appsv1.StatefulSet {
		set := workload.StatefulSet(name, replicas)
		set.Namespace = t.namespace
		return set
	}
	items := func(list *appsv1.StatefulSetList) []appsv1.StatefulSet { return list.Items }
	return replicatedBy(t, "StatefulSets", t.client.AppsV1().StatefulSets(t.namespace), object, items, workload.StatefulSetDone)
}

// client is a typed client of objects T, whose list is an L.
type client[T, L any] interface {
	Create(ctx context.Context, object *T, options metav1.CreateOptions) (*T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*T, error)
	List(ctx context.Context, options metav1.ListOptions) (*L, error)
}

// replicatedBy has a client do the operations.
func replicatedBy[T, L any](t *turn, kind string, by client[T, L], object func(name string, replicas int32) *T, items func(*L) []T, done func(*T) bool) replicated {
	return replicated{
		kind: kind,
		create: func(ctx context.Context, name string, replicas int32) error {
			_, err := by.Create(ctx, object(name, replicas), metav1.CreateOptions{})
			return err
		},
		roll: func(ctx context.Context, name string) error {
			_, err := by.Patch(ctx, name, types.StrategicMergePatchType, nextImage, metav1.PatchOptions{})
			return err
		},
		done: func(ctx context.Context, count int) error {
			return t.eventually(ctx, "all "+kind+" to be done", func() (bool, error) {
				list, err := by.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
				if err != nil {
					return false, err
				}
				return counted(items(list), done) == count+1, nil
			})
		},
	}
}

// counted is how many are done.
func counted[T any](all []T, done func(*T) bool) (n int) {
	for i := range all {
		if done(&all[i]) {
			n++
		}
	}
	return n
}

func (t *turn) jobs(ctx context.Context, j spec.Jobs) error {
	t.say("running %d Jobs of %d pods", j.Count, j.Pods)
	for i := range j.Count {
		job := workload.Job(fmt.Sprintf("job-%04d", i), j.Pods)
		job.Namespace = t.namespace
		if _, err := t.client.BatchV1().Jobs(t.namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return t.jobsDone(ctx, j.Count)
}

// jobsDone waits until so many Jobs are complete, and that of the warm-up.
func (t *turn) jobsDone(ctx context.Context, count int) error {
	return t.eventually(ctx, "all Jobs to be complete", func() (bool, error) {
		list, err := t.client.BatchV1().Jobs(t.namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		return counted(list.Items, workload.JobComplete) == count+1, nil
	})
}

func (t *turn) makeDaemonSet(ctx context.Context, d spec.DaemonSet) error {
	t.say("making a DaemonSet on %d nodes", t.spec.Nodes)
	ds := workload.DaemonSet(daemonSetName, workload.MaxUnavailable(max(d.MaxUnavailable, 1)))
	ds.Namespace = t.namespace
	if _, err := t.client.AppsV1().DaemonSets(t.namespace).Create(ctx, ds, metav1.CreateOptions{}); err != nil {
		return err
	}
	return t.daemonSetDone(ctx)
}

func (t *turn) rollDaemonSet(ctx context.Context, d spec.DaemonSet) error {
	t.say("rolling a DaemonSet on %d nodes", t.spec.Nodes)
	_, err := t.client.AppsV1().DaemonSets(t.namespace).Patch(ctx, daemonSetName, types.StrategicMergePatchType, nextImage, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	for i := range d.Churn {
		if err := t.exchangeNode(ctx); err != nil {
			return err
		}
		t.say("rolling a DaemonSet on %d nodes, of which %d of %d have been exchanged", t.spec.Nodes, i+1, d.Churn)
	}
	if err := t.daemonSetDone(ctx); err != nil || d.Churn == 0 {
		return err
	}
	return t.eventually(ctx, "the pods of the nodes that left to be gone", func() (bool, error) {
		pods, err := t.client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		nodes := sets.New(t.cluster.Nodes().Names()...)
		return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !nodes.Has(pod.Spec.NodeName) }), nil
	})
}

// exchangeNode has a node leave and another join. What warmed up runs on the first node, which stays.
func (t *turn) exchangeNode(ctx context.Context) error {
	if err := t.cluster.Nodes().Delete(ctx, t.cluster.Nodes().Names()[1]); err != nil {
		return err
	}
	if _, err := t.cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: 1}); err != nil {
		return err
	}
	return faultrig.Sleep(ctx, churnEvery)
}

func (t *turn) daemonSetDone(ctx context.Context) error {
	return t.eventually(ctx, "the DaemonSet to be done", func() (bool, error) {
		ds, err := t.client.AppsV1().DaemonSets(t.namespace).Get(ctx, daemonSetName, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		want, s := int32(t.spec.Nodes), ds.Status
		return s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled == want && s.CurrentNumberScheduled == want &&
			s.UpdatedNumberScheduled == want && s.NumberAvailable == want, nil
	})
}

// nextImage changes a template.
var nextImage = []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"` + workload.Image + `:next"}]}}}}`)

// quantiles are the median and the p99, in seconds. It sorts.
func quantiles(took []time.Duration) (p50, p99 float64) {
	slices.Sort(took)
	return took[(len(took)-1)/2].Seconds(), took[(len(took)-1)*99/100].Seconds()
}
