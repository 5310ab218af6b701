// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// history is a made-up record; each event gets the next resource version.
type history struct {
	rv     uint64
	events map[schema.GroupResource][]truth.Event
	writes []controlplane.AuditEvent
}

func (h *history) add(resource schema.GroupResource, event watch.EventType, object runtime.Object) {
	if h.events == nil {
		h.events = map[schema.GroupResource][]truth.Event{}
	}
	h.rv++
	m := object.(metav1.Object)
	h.events[resource] = append(h.events[resource], truth.Event{
		Type: event, RV: h.rv, Time: time.Unix(int64(h.rv), 0), Object: object,
		UID: m.GetUID(), Namespace: m.GetNamespace(), Name: m.GetName(),
	})
}

func (h *history) wrote(account, verb, resource, name string, code int) {
	var e controlplane.AuditEvent
	e.Stage, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name = "ResponseComplete", verb, resource, "default", name
	if resource != "pods" {
		e.ObjectRef.APIGroup = "apps"
	}
	e.User.Username, e.ResponseStatus.Code = account, code
	if account != "admin" {
		e.User.Username = "system:serviceaccount:kube-system:" + account
	}
	e.StageTimestamp = time.Unix(int64(h.rv), int64(len(h.writes)))
	h.writes = append(h.writes, e)
}

func (h *history) pod(event watch.EventType, name, node string, change ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range change {
		c(p)
	}
	h.add(truth.Pods, event, p)
}

func deleting(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func (h *history) set(event watch.EventType, change ...func(*appsv1.DaemonSet)) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Namespace: "default", UID: "ds"}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	for _, c := range change {
		c(ds)
	}
	h.add(truth.DaemonSets, event, ds)
}

func status(current int32, observed int64) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) {
		ds.Status.CurrentNumberScheduled, ds.Status.ObservedGeneration = current, observed
	}
}

func surging(ds *appsv1.DaemonSet) {
	one := intstr.FromInt(1)
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &one},
	}
}

func (h *history) node(event watch.EventType, name string, change ...func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, c := range change {
		c(n)
	}
	h.add(truth.Nodes, event, n)
}

// deletedAndNodeGone has somebody delete a pod of a DaemonSet before its node is gone, or after.
func deletedAndNodeGone(by string, before bool) func(*history) {
	return func(h *history) {
		h.node(watch.Added, "n1")
		h.set(watch.Added)
		h.pod(watch.Added, "a", "n1")
		if before {
			h.pod(watch.Deleted, "a", "n1")
			h.node(watch.Deleted, "n1")
		} else {
			h.node(watch.Deleted, "n1")
			h.pod(watch.Deleted, "a", "n1")
		}
		h.wrote(by, "delete", "pods", "a", 200)
	}
}

func (h *history) revision(event watch.EventType, name string, number int64) {
	h.add(truth.ControllerRevisions, event, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}},
	}, Revision: number})
}

// Every rule finds what it is for, and leaves alone what looks like it.
func TestOracles(t *testing.T) {
	tests := map[string]struct {
		history func(h *history)
		want    map[string]int
	}{
		"one pod on each node": {func(h *history) {
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Added, "b", "n2")
		}, nil},
		"two on one": {func(h *history) {
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Added, "b", "n1")
			h.pod(watch.Modified, "b", "n1")
		}, map[string]int{"S1 surplus pod": 1}},
		"the first is being deleted": {func(h *history) {
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Modified, "a", "n1", deleting)
			h.pod(watch.Added, "b", "n1")
		}, nil},
		"two while surging, then three": {func(h *history) {
			h.set(watch.Added, surging)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Added, "b", "n1")
			h.pod(watch.Added, "c", "n1")
		}, map[string]int{"S1 surplus pod": 1}},
		"delete on a node that should run it": {func(h *history) {
			h.node(watch.Added, "n1")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Deleted, "a", "n1")
			h.wrote(DaemonSetController, "delete", "pods", "a", 200)
		}, map[string]int{"S2 unjustified delete": 1}},
		"delete by a user": {func(h *history) {
			h.node(watch.Added, "n1")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Deleted, "a", "n1")
			h.wrote("admin", "delete", "pods", "a", 200)
		}, nil},
		"delete after the node is gone":                    {deletedAndNodeGone(DaemonSetController, false), nil},
		"delete just before the node is gone":              {deletedAndNodeGone(DaemonSetController, true), map[string]int{"S2 unjustified delete": 1}},
		"podgc deletes a pod after its node is gone":       {deletedAndNodeGone(PodGarbageCollector, false), nil},
		"podgc deletes a pod just before its node is gone": {deletedAndNodeGone(PodGarbageCollector, true), map[string]int{"S2 unjustified delete": 1}},
		"a live node is marked": {func(h *history) {
			h.node(watch.Added, "n1")
			h.node(watch.Modified, "n1", func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
			})
		}, map[string]int{"S2 live node marked Unknown": 1, "S2 live node tainted": 1}},
		"the first status after a burst": {func(h *history) {
			h.node(watch.Added, "n1")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.set(watch.Modified, status(0, 1))
		}, nil},
		"a second status that misses it": {func(h *history) {
			h.node(watch.Added, "n1")
			h.node(watch.Added, "n2")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Added, "b", "n2")
			h.set(watch.Modified, status(0, 1))
			h.set(watch.Modified, status(1, 1))
		}, map[string]int{"S3 " + RuleStatusBehindPods: 1}},
		"the missed one was deleted": {func(h *history) {
			h.node(watch.Added, "n1")
			h.node(watch.Added, "n2")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.pod(watch.Added, "b", "n2")
			h.set(watch.Modified, status(2, 1))
			h.pod(watch.Deleted, "b", "n2")
			h.set(watch.Modified, status(1, 1))
		}, nil},
		"observedGeneration": {func(h *history) {
			h.set(watch.Added, status(0, 2))
			h.set(watch.Modified, status(0, 1))
		}, map[string]int{"S3 " + RuleStatusBack: 1}},
		"collisionCount": {func(h *history) {
			h.set(watch.Added)
			h.set(watch.Modified, func(ds *appsv1.DaemonSet) { ds.Status.CollisionCount = new(int32(1)) })
		}, map[string]int{"S3 " + RuleCollision: 1}},
		"conflict with own write": {func(h *history) {
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 200)
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 409)
		}, map[string]int{"S3 " + RuleStatusConflict: 1}},
		"conflict with a user's edit": {func(h *history) {
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 200)
			h.wrote("admin", "patch", "daemonsets", "ds", 200)
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 409)
		}, nil},
		"conflict with a user's edit that is answered later": {func(h *history) {
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 200)
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 409)
			h.wrote("admin", "patch", "daemonsets", "ds", 200)
			h.writes[2].RequestReceivedTimestamp = h.writes[0].StageTimestamp
		}, nil},
		"conflict before a user's edit": {func(h *history) {
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 200)
			h.wrote(DaemonSetController, "update", "daemonsets", "ds", 409)
			h.wrote("admin", "patch", "daemonsets", "ds", 200)
			h.writes[2].RequestReceivedTimestamp = h.writes[1].StageTimestamp
		}, map[string]int{"S3 " + RuleStatusConflict: 1}},
		"revision again": {func(h *history) {
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-1", 201)
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-1", 409)
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-2", 409)
		}, map[string]int{"S3 " + RuleRevisionAgain: 1}},
		"revision of a DaemonSet that was deleted": {func(h *history) {
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-1", 201)
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-x-1", 201)
			h.wrote("admin", "delete", "daemonsets", "ds", 200)
			h.wrote("admin", "create", "daemonsets", "ds", 201)
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-1", 409)
			h.wrote(DaemonSetController, "create", "controllerrevisions", "ds-x-1", 409) // of another, which lives
		}, map[string]int{"S3 " + RuleRevisionAgain: 1}},
		"revision number": {func(h *history) {
			h.revision(watch.Added, "ds-1", 1)
			h.revision(watch.Added, "ds-2", 2)
			h.revision(watch.Added, "ds-3", 2)
		}, map[string]int{"S3 " + RuleRevisionNumber: 1}},
		"number of a deleted revision": {func(h *history) {
			h.revision(watch.Added, "ds-1", 1)
			h.revision(watch.Deleted, "ds-1", 1)
			h.revision(watch.Added, "ds-2", 1)
		}, nil},
		"delete again": {func(h *history) {
			h.wrote(DaemonSetController, "delete", "pods", "a", 200)
			h.wrote(DaemonSetController, "delete", "pods", "a", 404)
		}, map[string]int{"S3 " + RuleDeleteAgain: 1}},
		"create again": {func(h *history) {
			h.node(watch.Added, "n1")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n1")
			h.set(watch.Modified, status(1, 1))
			h.pod(watch.Added, "b", "n1")
		}, map[string]int{"S1 surplus pod": 1, "S3 " + RuleCreateAgain: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			tt.history(h)
			record := truth.Replay(h.events)
			found := Surplus(record)
			found = append(found, Unjustified(record, h.writes, Deaths{}, DaemonSetDeletes, OrphanDeletes)...)
			found = append(found, BehindOwnWrites(record, h.writes)...)
			if got := Count(found); !maps.Equal(got, tt.want) {
				t.Errorf("found %v, want %v: %v", got, tt.want, found)
			}
		})
	}
}
