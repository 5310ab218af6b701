// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// guardEvictions has the store's guard, if there is one, decide on evictions when they are due.
func (tc *Controller) guardEvictions(ctx context.Context, store consistencyutil.ConsistencyStore) {
	guard := consistencyutil.GuardEvictions(ctx, store, consistencyutil.Evictor{
		Client: tc.client, Nodes: tc.nodeLister, MinToleration: getMinTolerationTime,
		Evicting: func(pod types.NamespacedName) {
			klog.Background().Info("Deleting pod", "controller", tc.name, "pod", pod)
			tc.emitPodDeletionEvent(pod)
		},
		Cancelled: tc.emitCancelPodDeletionEvent,
		Recheck:   func(node string) { tc.nodeUpdateQueue.Add(nodeUpdateItem{nodeName: node}) },
	})
	if guard == nil {
		return
	}
	tc.guarded = true
	tc.untaintedNodes = map[string]int{}
	tc.taintEvictionQueue = CreateWorkerQueue(func(ctx context.Context, due time.Time, args *WorkArgs) error {
		wanted := func() bool {
			_, gone := tc.nodeLister.Get(args.Eviction.Node) // Then the eviction goes on.
			return tc.taintEvictionQueue.has(args) && (gone != nil || tc.untainted(args.Eviction.Node) == 0)
		}
		if retry := guard.Evict(ctx, *args.Eviction, due, wanted); retry != nil {
			return retry
		}
		return nil
	})
}

// workArgs are the arguments of a pod's eviction.
func (tc *Controller) workArgs(pod types.NamespacedName, uid types.UID, node string, start time.Time) *WorkArgs {
	args := NewWorkArgs(pod.Name, pod.Namespace)
	if tc.guarded {
		args.guard(consistencyutil.Eviction{Pod: pod, UID: uid, Node: node, Start: start})
	}
	return args
}

func (w *WorkArgs) guard(eviction consistencyutil.Eviction) {
	w.Object.UID, w.Eviction = eviction.UID, &eviction
}

// isFor reports whether the work is for the pod with the UID. Without a guard nobody knows.
func (w *TimedWorker) isFor(uid types.UID) bool {
	return w.WorkItem.Eviction == nil || w.WorkItem.Eviction.UID == uid
}

// replaced reports whether two objects of one name are not the same.
func (tc *Controller) replaced(old, new metav1.Object) bool {
	return tc.guarded && old.GetUID() != new.GetUID()
}

// noteUntainted keeps in mind that the node was without taints, or another, for the worker: in the queue the removal of a taint and its return become one.
func (tc *Controller) noteUntainted(node string, untainted bool) {
	if !tc.guarded || !untainted {
		return
	}
	tc.taintedNodesLock.Lock()
	defer tc.taintedNodesLock.Unlock()
	tc.untaintedNodes[node]++
}

func (tc *Controller) untainted(node string) int {
	tc.taintedNodesLock.Lock()
	defer tc.taintedNodesLock.Unlock()
	return tc.untaintedNodes[node]
}

// cancelIfUntainted cancels what was scheduled for the pods before their node was without taints.
func (tc *Controller) cancelIfUntainted(logger klog.Logger, node string, pods []*v1.Pod) {
	times := tc.untainted(node)
	if times == 0 {
		return
	}
	for _, pod := range pods {
		tc.cancelWorkWithEvent(logger, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
	tc.taintedNodesLock.Lock()
	defer tc.taintedNodesLock.Unlock()
	if tc.untaintedNodes[node] == times {
		delete(tc.untaintedNodes, node)
	}
}

// has reports whether the work is in the queue, or under way and not called off.
func (q *TimedWorkerQueue) has(args *WorkArgs) bool {
	q.Lock()
	defer q.Unlock()
	return q.holds(args)
}

func (q *TimedWorkerQueue) holds(args *WorkArgs) bool {
	worker, ok := q.workers[args.KeyFromWorkArgs()]
	return ok && worker != nil && worker.WorkItem == args
}

// settle removes guarded work that was done, or puts it back if the guard said so. The queue is locked.
func (q *TimedWorkerQueue) settle(ctx context.Context, args *WorkArgs, err error) error {
	var retry *consistencyutil.RetryEviction
	again := errors.As(err, &retry)
	key := args.KeyFromWorkArgs()
	if !q.holds(args) {
		if again {
			retry.Cancelled()
		}
		return nil
	}
	delete(q.workers, key)
	next := NewWorkArgs(args.Object.Name, args.Object.Namespace)
	at := q.clock.Now()
	switch {
	case again:
		next.guard(retry.Eviction)
		next.Cancelled = retry.Cancelled
		if !args.again.Load() {
			at = retry.At
		}
	case args.again.Load():
		next.guard(*args.Eviction) // What was decided is older than what the controller saw meanwhile.
	default:
		return err
	}
	q.workers[key] = createWorker(ctx, &q.workerWG, next, q.clock.Now(), at, q.getWrappedWorkerFunc(key), q.clock)
	q.workers[key].CreatedAt = next.Eviction.Start
	return nil
}
