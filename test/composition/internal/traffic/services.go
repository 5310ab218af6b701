// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"strconv"
	"strings"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

func newService(s schedule.Service) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.Name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Selector: map[string]string{"app": s.Over}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
}

// addresses are those of a pod, which no other one has.
func addresses(pod *corev1.Pod) []corev1.PodIP {
	n, err := strconv.Atoi(strings.TrimPrefix(string(pod.UID), "uid-"))
	if err != nil {
		panic(err)
	}
	return []corev1.PodIP{{IP: fmt.Sprintf("10.%d.%d.%d", 1+n>>16&0x7f, n>>8&0xff, n&0xff)}}
}

// makeNode makes a node, and its lease.
func (t *Traffic) makeNode(n *node) {
	if !t.server.TryCreate(model.Nodes, newNode(n.name)) {
		return
	}
	t.server.TryCreate(model.Leases, &coordv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.name},
		Spec:       coordv1.LeaseSpec{HolderIdentity: &n.name, RenewTime: new(metav1.NowMicro())},
	})
}

// doForService does what a step of work on a Service, or about a node that comes, says. It reports whether the step is one.
func (t *Traffic) doForService(s schedule.Step) bool {
	switch s.Action {
	case schedule.NodeComes:
		n := t.nodes[s.N%len(t.nodes)]
		if n.late.Swap(false) {
			t.setDead(n, false)
			t.makeNode(n)
		}
	case schedule.ServiceGone:
		var old *corev1.Service
		t.server.Look(func(truth model.Truth) { old, _ = truth.Get(model.Services, Namespace, s.Target).(*corev1.Service) })
		if old == nil {
			return true
		}
		t.server.Delete(model.Services, Namespace, s.Target, nil)
		t.After(collectTime, func() { t.collectSlices() })
		t.After(s.For, func() {
			t.server.TryCreate(model.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.Target}, Spec: old.Spec})
		})
	case schedule.Reselect:
		if len(t.selectable) == 0 {
			return true // They were taken out of a smaller history.
		}
		model.Change(t.server, model.Services, Namespace, s.Target, func(x *corev1.Service) {
			x.Spec.Selector = map[string]string{"app": t.selectable[s.N%len(t.selectable)]}
		})
	default:
		return false
	}
	return true
}

// collectSlices removes the slices whose Service is gone, as the garbage collector does.
func (t *Traffic) collectSlices() {
	var orphans []model.Object
	t.server.Look(func(truth model.Truth) {
		there := map[types.UID]bool{}
		for _, o := range truth.List(model.Services) {
			there[o.GetUID()] = true
		}
		for _, o := range truth.List(model.Slices) {
			if ref := metav1.GetControllerOfNoCopy(o); ref != nil && !there[ref.UID] {
				orphans = append(orphans, o)
			}
		}
	})
	for _, o := range orphans {
		t.server.Delete(model.Slices, o.GetNamespace(), o.GetName(), nil)
	}
}
