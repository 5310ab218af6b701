// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Truth is what happened to nodes and pods, recorded by watches that go to the apiserver directly.
type Truth struct {
	mu    sync.Mutex
	nodes map[string][]nodeState
	pods  map[string]*podState // by namespace/name
}

// nodeState is a node from one moment to the next one recorded.
type nodeState struct {
	at        time.Time
	ready     corev1.ConditionStatus
	noExecute []corev1.Taint
}

type podState struct {
	node    string
	running bool
	going   bool // being deleted, or gone
}

// Record begins to record, and returns when it knows what is there. It ends with the context.
func (r *Rig) Record(ctx context.Context) (*Truth, error) {
	t := &Truth{nodes: map[string][]nodeState{}, pods: map[string]*podState{}}
	factory := informers.NewSharedInformerFactory(r.Client, 0)
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.node(obj) },
		UpdateFunc: func(_, obj any) { t.node(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("recording nodes: %w", err)
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.pod(obj, false) },
		UpdateFunc: func(_, obj any) { t.pod(obj, false) },
		DeleteFunc: func(obj any) { t.pod(obj, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("recording pods: %w", err)
	}
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("recording %s: %w", kind, context.Cause(ctx))
		}
	}
	return t, nil
}

func (t *Truth) node(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	s := nodeState{at: time.Now()}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			s.ready = c.Status
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			s.noExecute = append(s.noExecute, taint)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[node.Name] = append(t.nodes[node.Name], s)
}

func (t *Truth) pod(obj any, deleted bool) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[pod.Namespace+"/"+pod.Name] = &podState{
		node:    pod.Spec.NodeName,
		running: pod.Status.Phase == corev1.PodRunning,
		going:   deleted || pod.DeletionTimestamp != nil,
	}
}

// Nodes counts the nodes whose Ready condition has this status.
func (t *Truth) Nodes(ready corev1.ConditionStatus) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, states := range t.nodes {
		if states[len(states)-1].ready == ready {
			n++
		}
	}
	return n
}

// Running counts the named pods that run and are not being deleted.
func (t *Truth) Running(names []string) int {
	return t.count(names, func(p *podState) bool { return p.running && !p.going })
}

// Going counts the named pods that are being deleted or gone.
func (t *Truth) Going(names []string) int {
	return t.count(names, func(p *podState) bool { return p.going })
}

func (t *Truth) count(names []string, match func(*podState) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, name := range names {
		if p := t.pods[name]; p != nil && match(p) {
			n++
		}
	}
	return n
}

// Delete is one pod deleted by a kube-controller-manager, with the truth about it.
type Delete struct {
	Time time.Time
	// By is the controller's service account, Pod its namespace and name.
	By, Pod string
	// Justified says that the pod's node had a NoExecute taint when the apiserver was asked to delete it.
	Justified bool
}

// Deletes returns the first deletion of each pod that an apiserver's audit log blames on a controller.
func (t *Truth) Deletes(auditLog string) ([]Delete, error) {
	var deletes []Delete
	seen := map[string]bool{}
	_, err := controlplane.ReadAudit(auditLog, 0, func(e controlplane.AuditEvent) {
		o := e.ObjectRef
		pod := o.Namespace + "/" + o.Name
		if e.Verb != "delete" || o.Resource != "pods" || o.Subresource != "" || e.ResponseStatus.Code >= 300 ||
			!fromKCM(e) || seen[pod] {
			return
		}
		seen[pod] = true
		deletes = append(deletes, Delete{
			Time: e.RequestReceivedTimestamp, By: e.ServiceAccount(), Pod: pod,
			Justified: t.tainted(pod, e.RequestReceivedTimestamp),
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(deletes, func(a, b Delete) int { return a.Time.Compare(b.Time) })
	return deletes, nil
}

// tainted reports whether the pod's node had a NoExecute taint at a time. A removal is recorded some
// milliseconds after it happened, so a deletion in between passes for justified.
func (t *Truth) tainted(pod string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[pod]
	if p == nil {
		return false
	}
	tainted := false
	for _, s := range t.nodes[p.node] {
		if s.at.After(at) {
			break
		}
		tainted = len(s.noExecute) > 0
	}
	return tainted
}
