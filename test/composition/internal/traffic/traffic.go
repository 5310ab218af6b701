// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traffic is everybody but kube-controller-manager: who makes objects and changes them, the scheduler, and
// the kubelets with their leases. What they do follows from the schedule and from the server's state, at once or
// after a fixed time, so that both arms meet the same.
package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	// Namespace is where owners and pods are.
	Namespace = "default"

	ScheduleTime = 20 * time.Millisecond
	startTime    = time.Second
	stopTime     = 500 * time.Millisecond
	jobTime      = 20 * time.Second
	renewEvery   = 10 * time.Second
	collectTime  = time.Second
)

// Traffic is one run's.
type Traffic struct {
	server *model.Server
	nodes  []*node
	ended  atomic.Bool
	// tenants have so many pods at the start.
	tenants map[string]int
	// addressed says that pods have addresses, and selectable are the owners whose pods a Service may select.
	addressed  bool
	selectable []string
	families   []*family
	claimers   []schedule.Claimer
	scaling    scaling
	volumes    map[string]*volume // under the server's lock
	n          map[string]int     // pods of each owner that were scheduled; under the server's lock
	// unscheduled has the pods that no node was fit for, until a node changes; under the server's lock.
	unscheduled []func()

	mu      sync.Mutex
	owners  map[string]schedule.Owner
	made    int               // owners
	unready map[types.UID]int // pods that a step has made unready
}

// node is a machine with its kubelet.
type node struct {
	name   string
	offset atomic.Int64 // of its clock
	dead   atomic.Bool
	downs  atomic.Int64 // steps that have stopped its kubelet
	late   atomic.Bool  // it was not made yet
}

func (n *node) clock() time.Time { return time.Now().Add(time.Duration(n.offset.Load())) }

// Start makes the objects of the schedule, and everybody who looks after them.
func Start(server *model.Server, s schedule.Schedule) *Traffic {
	t := &Traffic{server: server, tenants: map[string]int{}, owners: map[string]schedule.Owner{}, unready: map[types.UID]int{}, n: map[string]int{}}
	for i := range s.Nodes {
		n := &node{name: NodeName(i)}
		t.nodes = append(t.nodes, n)
		if i < s.Nodes-s.LateNodes {
			t.makeNode(n)
		} else {
			n.late.Store(true)
			t.setDead(n, true)
		}
		t.every(renewEvery, renewEvery*time.Duration(i)/time.Duration(s.Nodes), func() { t.heartbeat(n) })
	}
	for i := range 3 {
		server.Create(model.Widgets, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: fmt.Sprint("widget-", i)}})
	}
	t.startTenants(s)
	for _, c := range s.CronJobs {
		server.Create(model.CronJobs, newCronJob(c))
	}
	for _, o := range s.Owners {
		t.Make(o)
		t.selectable = append(t.selectable, o.Name)
	}
	t.startFamilies(s)
	t.startClaimers(s)
	t.startAutoscalers(s)
	t.startVolumes(s)
	for _, service := range s.Services {
		t.addressed = true
		server.Create(model.Services, newService(service))
	}
	return t
}

// Make makes an owner. Another of its name must be gone.
func (t *Traffic) Make(o schedule.Owner) {
	r, object := t.register(o)
	t.server.Create(r, object)
}

// register notes an owner that is about to be made, and returns its object.
func (t *Traffic) register(o schedule.Owner) (*model.Resource, model.Object) {
	t.mu.Lock()
	t.owners[o.Name] = o
	t.made++
	made := t.made
	t.mu.Unlock()
	return newOwner(o, made)
}

// Remove removes an owner, and soon after it what it owns, as the garbage collector does.
func (t *Traffic) Remove(o schedule.Owner) {
	owner := model.Owner{Kind: o.Kind, NamespacedName: types.NamespacedName{Namespace: namespaceOf(o), Name: o.Name}}
	t.server.Delete(Kinds[o.Kind], owner.Namespace, o.Name, new(int64(0)))
	t.forget(o)
	t.After(collectTime, func() {
		for _, r := range []*model.Resource{model.Pods, model.Revisions} {
			var owned []model.Object
			t.server.Look(func(truth model.Truth) { owned = truth.Owned(r, owner) })
			for _, object := range owned {
				t.server.Delete(r, object.GetNamespace(), object.GetName(), new(int64(0)))
			}
		}
	})
}

// forget drops what is known of an owner.
func (t *Traffic) forget(o schedule.Owner) {
	t.mu.Lock()
	delete(t.owners, o.Name)
	t.mu.Unlock()
	t.server.Look(func(model.Truth) { delete(t.n, o.Name) })
}

// MakeNamespace makes a namespace.
func (t *Traffic) MakeNamespace(name string) {
	t.server.Create(model.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// RemoveNamespace begins to remove a namespace, whose owners these are. The namespace controller does the rest.
func (t *Traffic) RemoveNamespace(name string, owners []schedule.Owner) {
	t.server.Delete(model.Namespaces, "", name, nil)
	for _, o := range owners {
		t.forget(o)
	}
}

func namespaceOf(o schedule.Owner) string {
	return cmp.Or(o.Namespace, Namespace)
}

// End has nothing more happen.
func (t *Traffic) End() { t.ended.Store(true) }

// NodeName is the name of the ith node.
func NodeName(i int) string { return fmt.Sprint("node-", i) }

// After calls f later, unless the run has ended by then.
func (t *Traffic) After(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		if !t.ended.Load() {
			f()
		}
	})
}

// every calls f for the first time after first.
func (t *Traffic) every(period, first time.Duration, f func()) {
	t.After(first, func() {
		f()
		t.every(period, period, f)
	})
}

// heartbeat renews the lease of a node, by its own clock, and mends its condition and its pods'.
func (t *Traffic) heartbeat(n *node) {
	if n.dead.Load() {
		return
	}
	now := n.clock()
	model.Change(t.server, model.Leases, corev1.NamespaceNodeLease, n.name, func(l *coordv1.Lease) { l.Spec.RenewTime = new(metav1.NewMicroTime(now)) })
	model.Change(t.server, model.Nodes, "", n.name, func(o *corev1.Node) {
		for i := range o.Status.Conditions {
			if c := &o.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				*c = ready(metav1.NewTime(now).Rfc3339Copy())
			}
		}
	})
	var pods []*corev1.Pod
	t.server.Look(func(truth model.Truth) {
		for _, o := range truth.List(model.Pods) {
			if pod := o.(*corev1.Pod); pod.Spec.NodeName == n.name && pod.Status.Phase == corev1.PodRunning && !isReady(pod, t.readiness(pod)) {
				pods = append(pods, pod)
			}
		}
	})
	for _, pod := range pods {
		t.setReady(pod)
	}
}

func ready(now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}
}

// Changed is to be told of every change, and has the scheduler and the kubelets do their part.
func (t *Traffic) Changed(old, now model.Object) {
	if len(t.families) == 0 {
		t.collectWhatIsLeft(old, now)
	}
	if _, node := now.(*corev1.Node); node && !t.ended.Load() {
		for _, schedule := range t.unscheduled {
			t.After(ScheduleTime, schedule)
		}
		t.unscheduled = nil
	}
	t.changedClaim(old, now)
	if t.changedVolume(old, now) {
		return
	}
	pod, ok := now.(*corev1.Pod)
	if !ok || now == nil || t.ended.Load() {
		return
	}
	was, _ := old.(*corev1.Pod)
	switch {
	case pod.DeletionTimestamp != nil && (was == nil || was.DeletionTimestamp == nil):
		t.After(cmp.Or(t.ownerOf(pod).Stops, stopTime), func() { t.stop(pod) })
	case pod.Spec.NodeName == "" && len(pod.Spec.ResourceClaims) > 0: // It waits for its claims.
	case pod.Spec.NodeName == "" && was == nil:
		owner := ""
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			owner = ref.Name
		}
		t.n[owner]++
		number := t.n[owner] + len(owner)
		t.After(ScheduleTime, func() { t.schedule(pod, number) })
	case pod.Spec.NodeName != "" && (was == nil || was.Spec.NodeName == ""):
		starts := cmp.Or(t.ownerOf(pod).Starts, startTime)
		if late := t.lateness(pod); late > 0 {
			t.After(starts, func() {
				t.makeUnready(pod, 1)
				t.After(late, func() { t.makeUnready(pod, -1) })
			})
			return
		}
		t.After(starts, func() { t.setReady(pod) })
		if metav1.GetControllerOfNoCopy(pod) != nil && metav1.GetControllerOfNoCopy(pod).Kind == "Job" {
			t.After(starts+jobTime, func() { t.finish(pod) })
		}
	}
}

// ownerOf is the owner of a pod, if the pod has one.
func (t *Traffic) ownerOf(pod *corev1.Pod) schedule.Owner {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return schedule.Owner{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.owners {
		if isOf(ref, o) {
			return o
		}
	}
	return schedule.Owner{}
}

// collectWhatIsLeft removes what is left of an owner that is gone, as the garbage collector does, in histories that run none.
func (t *Traffic) collectWhatIsLeft(old, now model.Object) {
	if slice, made := now.(*discoveryv1.EndpointSlice); made && slice != nil && old == nil && !t.ended.Load() {
		t.After(collectTime, t.collectSlices) // Its Service may have been gone before.
	}
	if pod, made := now.(*corev1.Pod); made && pod != nil && old == nil && !t.ended.Load() {
		t.After(collectTime, func() { t.collectPod(pod) }) // Its owner may have been gone before.
	}
	if pod, gone := old.(*corev1.Pod); gone && now == nil && !t.ended.Load() {
		t.After(collectTime, func() { t.collectVolumeClaims(pod.UID) })
	}
	if job, gone := old.(*batchv1.Job); gone && now == nil && metav1.GetControllerOfNoCopy(job) != nil && !t.ended.Load() {
		t.After(collectTime, func() { t.collect(job) })
	}
	if job, made := now.(*batchv1.Job); made && old == nil && !t.ended.Load() {
		t.After(collectTime, func() {
			// Its CronJob may have been gone before.
			if ref := metav1.GetControllerOfNoCopy(job); ref != nil && ref.Kind == model.CronJobs.Kind {
				if c := t.cronJob(ref.Name); c == nil || c.UID != ref.UID {
					t.collectJobs(ref.UID)
				}
			}
		})
	}
}

// collectVolumeClaims removes the volume claims that belonged to a pod that is gone.
func (t *Traffic) collectVolumeClaims(pod types.UID) {
	var left []model.Object
	t.server.Look(func(truth model.Truth) {
		for _, claim := range truth.List(model.Claims) {
			if slices.ContainsFunc(claim.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == pod }) {
				left = append(left, claim)
			}
		}
	})
	for _, claim := range left {
		t.server.Delete(model.Claims, claim.GetNamespace(), claim.GetName(), new(int64(0)))
	}
}

// collectPod removes a pod whose owner is gone.
func (t *Traffic) collectPod(pod *corev1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || Kinds[ref.Kind] == nil {
		return
	}
	gone := false
	t.server.Look(func(truth model.Truth) {
		owner, now := truth.Get(Kinds[ref.Kind], pod.Namespace, ref.Name), truth.Get(model.Pods, pod.Namespace, pod.Name)
		gone = (owner == nil || owner.GetUID() != ref.UID) && now != nil && now.GetUID() == pod.UID
	})
	if gone {
		t.server.Delete(model.Pods, pod.Namespace, pod.Name, new(int64(0)))
	}
}

// schedule puts a pod on a node that has no taint against it, in turns, or has it wait until a node changes. A
// DaemonSet's pod says which node.
func (t *Traffic) schedule(pod *corev1.Pod, number int) {
	pinned := ""
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				pinned = f.Values[0]
			}
		}
	}
	name := ""
	t.server.Look(func(truth model.Truth) {
		if truth.Get(model.Pods, pod.Namespace, pod.Name) == nil {
			return
		}
		for i := range t.nodes {
			n := t.nodes[(number+i)%len(t.nodes)].name
			if (pinned == "" || n == pinned) && fits(truth, pod, n) {
				name = n
				return
			}
		}
		t.unscheduled = append(t.unscheduled, func() { t.schedule(pod, number) })
	})
	if name != "" {
		t.change(pod, func(p *corev1.Pod) { p.Spec.NodeName = name })
	}
}

// fits says that a node is there, and that the pod tolerates each of its taints that keeps pods away.
func fits(truth model.Truth, pod *corev1.Pod, node string) bool {
	n, _ := truth.Get(model.Nodes, "", node).(*corev1.Node)
	if n == nil {
		return false
	}
	_, against := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute || taint.Effect == corev1.TaintEffectNoSchedule
	}, false)
	return !against
}

// change changes a pod unless it is gone, or another one has its name.
func (t *Traffic) change(pod *corev1.Pod, change func(*corev1.Pod)) {
	model.Change(t.server, model.Pods, pod.Namespace, pod.Name, func(p *corev1.Pod) {
		if p.UID == pod.UID {
			change(p)
		}
	})
}

func (t *Traffic) dead(name string) bool {
	n := t.node(name)
	return n != nil && n.dead.Load()
}

// clock is what the node's clock shows, that of everybody else if there is no such node.
func (t *Traffic) clock(name string) time.Time {
	if n := t.node(name); n != nil {
		return n.clock()
	}
	return time.Now()
}

// node is the one of that name, nil if there is none.
func (t *Traffic) node(name string) *node {
	if i := slices.IndexFunc(t.nodes, func(n *node) bool { return n.name == name }); i >= 0 {
		return t.nodes[i]
	}
	return nil
}

// readiness is what a pod's readiness is to be: ready unless a step wants it not to be.
func (t *Traffic) readiness(pod *corev1.Pod) corev1.ConditionStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unready[pod.UID] > 0 {
		return corev1.ConditionFalse
	}
	return corev1.ConditionTrue
}

// isReady says that a pod runs, and that its readiness is this.
func isReady(p *corev1.Pod, status corev1.ConditionStatus) bool {
	return p.Status.Phase == corev1.PodRunning && len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == status
}

// setReady has a pod run, with the readiness that it is to have, once its kubelet is there.
func (t *Traffic) setReady(pod *corev1.Pod) {
	status, dead := t.readiness(pod), false
	if !t.reserved(pod) || !t.mounts(pod) {
		t.After(startTime, func() { t.setReady(pod) })
		return
	}
	t.change(pod, func(p *corev1.Pod) {
		if dead = t.dead(p.Spec.NodeName); dead || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || isReady(p, status) {
			return
		}
		now := metav1.NewTime(t.clock(p.Spec.NodeName)).Rfc3339Copy()
		p.Status.Phase = corev1.PodRunning
		p.Status.StartTime = &now
		if len(t.volumes) > 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
		}
		if t.addressed {
			p.Status.PodIPs = addresses(p)
			p.Status.PodIP = p.Status.PodIPs[0].IP
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now}}
	})
	if dead {
		t.After(renewEvery, func() { t.setReady(pod) })
	}
}

// makeUnready has a pod be unready as long as more say so than have taken it back.
func (t *Traffic) makeUnready(pod *corev1.Pod, more int) {
	t.mu.Lock()
	if t.unready[pod.UID] += more; t.unready[pod.UID] == 0 {
		delete(t.unready, pod.UID)
	}
	t.mu.Unlock()
	t.setReady(pod)
}

// finish has a pod end, once it runs and its kubelet is there.
func (t *Traffic) finish(pod *corev1.Pod) {
	later := false
	t.change(pod, func(p *corev1.Pod) {
		if later = t.dead(p.Spec.NodeName) || p.Status.Phase == corev1.PodPending; later || p.Status.Phase != corev1.PodRunning {
			return
		}
		p.Status.Phase = corev1.PodSucceeded
		p.Status.Conditions = nil
	})
	if later {
		t.After(renewEvery, func() { t.finish(pod) })
	}
}

// stop removes a pod that is being deleted.
func (t *Traffic) stop(pod *corev1.Pod) {
	gone := true
	t.change(pod, func(p *corev1.Pod) {
		if gone = !t.dead(p.Spec.NodeName); !gone {
			return
		}
		if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending {
			p.Status.Phase = corev1.PodFailed
			if owner := metav1.GetControllerOfNoCopy(p); owner == nil || owner.Kind != "Job" {
				p.Status.Phase = corev1.PodSucceeded
			}
			p.Status.Conditions = nil
		}
	})
	if !gone {
		t.After(renewEvery, func() { t.stop(pod) })
		return
	}
	t.server.Delete(model.Pods, pod.Namespace, pod.Name, new(int64(0)))
}
