// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// asked adds a request that arrived so long before the last event was recorded, and was answered then.
func (h *history) asked(user, verb, resource, name string, before time.Duration, change ...func(*controlplane.AuditEvent)) {
	h.wrote("admin", verb, resource, name, 200)
	e := &h.writes[len(h.writes)-1]
	e.User.Username = user
	e.StageTimestamp = time.Unix(int64(h.rv), 0)
	e.RequestReceivedTimestamp = e.StageTimestamp.Add(-before)
	for _, c := range change {
		c(e)
	}
}

func subresource(name string) func(*controlplane.AuditEvent) {
	return func(e *controlplane.AuditEvent) { e.ObjectRef.Subresource = name }
}

func answered(code int) func(*controlplane.AuditEvent) {
	return func(e *controlplane.AuditEvent) { e.ResponseStatus.Code = code }
}

func core(e *controlplane.AuditEvent) { e.ObjectRef.APIGroup, e.ObjectRef.Namespace = "", "" }

const (
	account = "system:serviceaccount:kube-system:"
	own     = "system:kube-controller-manager"
	moment  = 5 * time.Millisecond
)

// A pod that was deleted for no reason is found, whoever in kube-controller-manager asked for it, and however.
func TestWhoDeletes(t *testing.T) {
	none := ""
	for name, tt := range map[string]struct {
		asked func(h *history)
		by    string
	}{
		"a service account":          {func(h *history) { h.asked(account+"any-controller", "delete", "pods", "a", moment) }, "any-controller"},
		"the process's own identity": {func(h *history) { h.asked(own, "delete", "pods", "a", moment) }, KubeControllerManager},
		"a collection":               {func(h *history) { h.asked(own, "deletecollection", "pods", "", moment) }, KubeControllerManager},
		"an eviction": {func(h *history) {
			h.asked(account+NodeController, "create", "pods", "a", moment, subresource("eviction"))
		}, NodeController},
		"an answer that was an error": {func(h *history) { h.asked(own, "delete", "pods", "a", moment, answered(504)) }, KubeControllerManager},
		"a refused one":               {func(h *history) { h.asked(own, "delete", "pods", "a", moment, answered(409)) }, none},
		"somebody else":               {func(h *history) { h.asked("admin", "delete", "pods", "a", moment) }, none},
		"somebody else before it": {func(h *history) {
			h.asked("admin", "delete", "pods", "a", 2*moment)
			h.asked(own, "delete", "pods", "a", moment)
		}, none},
		"somebody else with success": {func(h *history) {
			h.asked(own, "delete", "pods", "a", 2*moment, answered(504))
			h.asked("admin", "delete", "pods", "a", moment)
		}, none},
		"its namespace goes": {func(h *history) {
			h.asked("admin", "delete", "namespaces", "default", 2*moment, core)
			h.asked(account+"namespace-controller", "deletecollection", "pods", "", moment)
		}, none},
		"its namespace goes later": {func(h *history) {
			h.asked(account+"namespace-controller", "deletecollection", "pods", "", 2*moment)
			h.asked("admin", "delete", "namespaces", "default", moment, core)
		}, "namespace-controller"},
		"one that came later": {func(h *history) { h.asked(own, "delete", "pods", "a", -moment) }, none},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.node(watch.Added, "n")
			h.set(watch.Added)
			h.pod(watch.Added, "a", "n")
			h.pod(watch.Deleted, "a", "n")
			tt.asked(h)
			found := Unjustified(truth.Replay(h.events), h.writes, Deaths{}, DaemonSetDeletes)
			if tt.by == none {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0].Detail, "by "+tt.by)
		})
	}
}

// Of two pods of one name each has its own deletion.
func TestNamesThatComeBack(t *testing.T) {
	h := &history{}
	second := func(p *corev1.Pod) { p.UID = "second" }
	h.node(watch.Added, "n")
	h.set(watch.Added)
	h.pod(watch.Added, "a", "n")
	h.pod(watch.Deleted, "a", "n")
	h.asked("admin", "delete", "pods", "a", moment)
	h.pod(watch.Added, "a", "n", second)
	h.pod(watch.Deleted, "a", "n", second)
	h.asked(own, "delete", "pods", "a", moment)
	found := Unjustified(truth.Replay(h.events), h.writes, Deaths{}, DaemonSetDeletes)
	require.Len(t, found, 1)
	require.EqualValues(t, h.rv, found[0].RV)
}

// The pod that is made at once under the name of one that somebody deleted was not deleted by that, though the truth is recorded late.
func TestNamesThatComeBackAtOnce(t *testing.T) {
	h := &history{}
	second := func(p *corev1.Pod) { p.UID = "second" }
	h.node(watch.Added, "n")
	h.set(watch.Added)
	h.pod(watch.Added, "late", "n")
	h.asked("admin", "create", "pods", "late", 2*time.Second)
	h.pod(watch.Added, "a", "n")
	h.pod(watch.Deleted, "a", "n")
	h.asked("admin", "delete", "pods", "a", moment)
	h.pod(watch.Added, "a", "n", second)
	h.asked("admin", "create", "pods", "a", time.Second-moment)
	h.pod(watch.Deleted, "a", "n", second)
	h.asked(own, "delete", "pods", "a", moment)
	require.GreaterOrEqual(t, newArrivals(truth.Replay(h.events), h.writes).lag, 2*time.Second)
	found := Unjustified(truth.Replay(h.events), h.writes, Deaths{}, DaemonSetDeletes)
	require.Len(t, found, 1)
	require.EqualValues(t, h.rv, found[0].RV)
}

func TestUnasked(t *testing.T) {
	h := &history{}
	h.pod(watch.Added, "a", "n")
	h.pod(watch.Modified, "a", "n", deleting)
	h.pod(watch.Deleted, "a", "n", deleting)
	require.Equal(t, map[string]int{"S2 " + RuleUnasked: 1}, Count(Unasked(truth.Replay(h.events), h.writes)))
	h.asked("admin", "deletecollection", "pods", "", 2*time.Second)
	require.Empty(t, Unasked(truth.Replay(h.events), h.writes))

	// An eviction changes the pod before it deletes it, and the truth may hear of that after the answer.
	late := &history{}
	late.pod(watch.Added, "a", "n")
	late.asked("admin", "create", "pods", "a", moment, subresource("eviction"))
	late.pod(watch.Modified, "a", "n")
	late.pod(watch.Modified, "a", "n", deleting)
	require.Empty(t, Unasked(truth.Replay(late.events), late.writes))
}

// What the truth is late by comes from the requests that leave no doubt.
func TestLag(t *testing.T) {
	h := &history{}
	require.Zero(t, Lag(truth.Replay(h.events), h.writes))
	h.set(watch.Added)
	h.asked("admin", "create", "daemonsets", "ds", 3*moment)
	h.pod(watch.Added, "a", "n")
	h.pod(watch.Deleted, "a", "n")
	h.asked(own, "delete", "pods", "a", 7*moment)
	require.Equal(t, 7*moment, Lag(truth.Replay(h.events), h.writes))
	h.pod(watch.Added, "b", "n")
	h.pod(watch.Deleted, "b", "n")
	h.asked(own, "delete", "pods", "b", 9*moment)
	h.asked("admin", "delete", "pods", "b", 8*moment) // which of them?
	h.asked("admin", "delete", "pods", "a", 9*moment) // not there any more
	require.Zero(t, Lag(truth.Replay(h.events), h.writes[len(h.writes)-3:]))
	h.node(watch.Added, "n", ready(corev1.ConditionTrue, 0))
	h.node(watch.Modified, "n", ready(corev1.ConditionUnknown, 0))
	h.asked(account+NodeController, "update", "nodes", "n", 11*moment, core, subresource("status"))
	require.Equal(t, 11*moment, Lag(truth.Replay(h.events), h.writes))
	h.idle(60) // The next taint is not of that request.
	h.node(watch.Modified, "n", ready(corev1.ConditionUnknown, 0), tainted(unreachable))
	h.asked("admin", "patch", "nodes", "n", 13*moment, core)
	require.Equal(t, 13*moment, Lag(truth.Replay(h.events), h.writes))
}

// What the truth is late by is allowed for, so a truth that is too late is a violation.
func TestTooLate(t *testing.T) {
	for late, want := range map[time.Duration]map[string]int{latest: {}, latest + time.Millisecond: {"S2 " + RuleTooLate: 1}} {
		h := &history{}
		h.set(watch.Added)
		h.asked("admin", "create", "daemonsets", "ds", late)
		require.Equal(t, want, Count(TooLate(truth.Replay(h.events), h.writes)), late)
	}
}

// A scale counts for as long before the first deletion of a reconcile as is promised, and for what the truth is late.
func TestScalesThatCount(t *testing.T) {
	for name, tt := range map[string]struct {
		up, idle uint64 // seconds before the first deletion at which it was scaled up, and between the two deletions
		status   bool
		wrong    int
	}{
		"scaled up while it was on its way": {up: 1, wrong: 0},
		"scaled up before":                  {up: 4, wrong: 2},
		"on its way for long":               {up: 1, idle: 20, wrong: 0},
		"a reconcile later":                 {up: 1, idle: 20, status: true, wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			scale := func(event watch.EventType, n int32) {
				h.add(truth.ReplicaSets, event, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: "default", UID: "rs"},
					Spec: appsv1.ReplicaSetSpec{Replicas: &n}})
			}
			of := func(p *corev1.Pod) {
				p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = "ReplicaSet", "rs", "rs"
			}
			scale(watch.Added, 2)
			h.pod(watch.Added, "a", "n", of)
			h.pod(watch.Added, "b", "n", of)
			scale(watch.Modified, 0)
			h.idle(100)
			scale(watch.Modified, 2)
			h.idle(tt.up - 1)
			h.pod(watch.Deleted, "a", "n", of)
			h.asked(account+ReplicaSetController, "delete", "pods", "a", moment)
			if tt.status {
				h.rv++
				h.asked(account+ReplicaSetController, "update", "replicasets", "rs", moment, subresource("status"))
			}
			h.idle(tt.idle)
			h.pod(watch.Deleted, "b", "n", of)
			h.asked(account+ReplicaSetController, "delete", "pods", "b", moment)
			require.Len(t, Unjustified(truth.Replay(h.events), h.writes, Deaths{}, ReplicaSetDeletes), tt.wrong)
		})
	}
}

func readiness(status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
}

func TestPodsMarkedNotReady(t *testing.T) {
	isTrue, isFalse, unknown := readiness(corev1.ConditionTrue), readiness(corev1.ConditionFalse), ready(corev1.ConditionUnknown, 0)
	alive := ready(corev1.ConditionTrue, 0)
	mark := func(h *history, name string, user string) {
		h.pod(watch.Modified, name, "n", isFalse)
		h.asked(user, "update", "pods", name, moment, subresource("status"))
	}
	for name, tt := range map[string]struct {
		history func(h *history)
		wrong   int
	}{
		"the node is Ready":              {func(h *history) { mark(h, "a", account+NodeController) }, 1},
		"somebody else says so":          {func(h *history) { mark(h, "a", "admin") }, 0},
		"the node is not":                {func(h *history) { h.node(watch.Modified, "n", unknown); mark(h, "a", account+NodeController) }, 0},
		"the node is Unknown only after": {func(h *history) { mark(h, "a", account+NodeController); h.node(watch.Modified, "n", unknown) }, 1},
		"the node became Ready just now": {func(h *history) {
			h.node(watch.Modified, "n", unknown)
			h.node(watch.Modified, "n", alive)
			mark(h, "a", account+NodeController)
		}, 0},
		"the node has been Ready for long": {func(h *history) {
			h.node(watch.Modified, "n", unknown)
			h.node(watch.Modified, "n", alive)
			h.idle(3)
			mark(h, "a", account+NodeController)
		}, 1},
		"one after the other": {func(h *history) {
			h.node(watch.Modified, "n", unknown)
			h.node(watch.Modified, "n", alive)
			h.idle(1)
			mark(h, "a", account+NodeController)
			h.idle(1)
			mark(h, "b", account+NodeController)
		}, 0},
		"much later than the other": {func(h *history) {
			h.node(watch.Modified, "n", unknown)
			h.node(watch.Modified, "n", alive)
			mark(h, "a", account+NodeController)
			h.idle(3)
			mark(h, "b", account+NodeController)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.node(watch.Added, "n", alive)
			h.pod(watch.Added, "a", "n", isTrue)
			h.pod(watch.Added, "b", "n", isTrue)
			tt.history(h)
			var want map[string]int
			if tt.wrong > 0 {
				want = map[string]int{"S2 " + RuleLivePod: tt.wrong}
			}
			found := Of(Unjustified(truth.Replay(h.events), h.writes, Deaths{Nodes: sets.New("n")}), "S2")
			require.True(t, maps.Equal(want, Count(found)), "%v", found)
		})
	}
}

func TestRevisionsDeleted(t *testing.T) {
	revisionOf := func(h *history, event watch.EventType, number int) {
		h.add(truth.ControllerRevisions, event, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("rev-", number), Namespace: "default", UID: types.UID(fmt.Sprint("rev-", number)),
			Labels:          map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: fmt.Sprint(number)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}},
		}, Data: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"number":%d}`, number)}, Revision: int64(number)})
	}
	keep := func(n int32) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Spec.RevisionHistoryLimit = &n }
	}
	remove := func(h *history, user string) {
		revisionOf(h, watch.Deleted, 1)
		h.asked(user, "delete", "controllerrevisions", "rev-1", moment)
	}
	byIt := account + DaemonSetController
	for name, tt := range map[string]struct {
		history func(h *history)
		wrong   string
	}{
		"too many":             {func(h *history) { h.set(watch.Modified, keep(1)); h.idle(3); remove(h, byIt) }, ""},
		"not too many":         {func(h *history) { h.set(watch.Modified, keep(2)); h.idle(3); remove(h, byIt) }, "only 1 old ones are left"},
		"not too many, a user": {func(h *history) { h.set(watch.Modified, keep(2)); h.idle(3); remove(h, "admin") }, ""},
		"a live pod is of it": {func(h *history) {
			h.set(watch.Modified, keep(0))
			h.pod(watch.Added, "a", "n", hashed("1"))
			h.idle(3)
			remove(h, byIt)
		}, "pod a is of it"},
		"a pod of it is going": {func(h *history) {
			h.set(watch.Modified, keep(0))
			h.pod(watch.Added, "a", "n", hashed("1"), deleting)
			h.idle(3)
			remove(h, byIt)
		}, ""},
		"the DaemonSet is gone":   {func(h *history) { h.set(watch.Deleted); remove(h, byIt) }, ""},
		"the spec is of just now": {func(h *history) { h.set(watch.Modified, keep(2), generation(2)); remove(h, byIt) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.set(watch.Added, keep(0))
			revisionOf(h, watch.Added, 1)
			revisionOf(h, watch.Added, 2)
			tt.history(h)
			found := Unjustified(truth.Replay(h.events), h.writes, Deaths{})
			if tt.wrong == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, RuleRevisionDeleted, found[0].Rule)
			require.Equal(t, tt.wrong, found[0].Detail)
		})
	}
}

// The revision of the template that a DaemonSet has is needed, even if none are to be kept; of several of one template one is.
func TestCurrentRevisionDeleted(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Namespace: "default", UID: "ds"}}
	ds.Spec.RevisionHistoryLimit = new(int32(0))
	revisionOf := func(name string) *appsv1.ControllerRevision {
		text, err := runtime.Encode(scheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion), ds)
		require.NoError(t, err)
		var object struct {
			Spec struct{ Template map[string]any }
		}
		require.NoError(t, json.Unmarshal(text, &object))
		object.Spec.Template["$patch"] = "replace"
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": object.Spec.Template}})
		require.NoError(t, err)
		out := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}},
		}, Data: runtime.RawExtension{Raw: raw}}
		match, err := daemon.Match(ds, out)
		require.NoError(t, err)
		require.True(t, match)
		return out
	}
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		h := &history{}
		h.add(truth.DaemonSets, watch.Added, ds)
		for _, name := range names {
			h.add(truth.ControllerRevisions, watch.Added, revisionOf(name))
		}
		h.idle(3)
		h.add(truth.ControllerRevisions, watch.Deleted, revisionOf("a"))
		h.asked(account+DaemonSetController, "delete", "controllerrevisions", "a", moment)
		found := Unjustified(truth.Replay(h.events), h.writes, Deaths{})
		if len(names) > 1 {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		require.Equal(t, "it is the current one", found[0].Detail)
	}
}

func TestReplicaSetsDeleted(t *testing.T) {
	of := func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID = "ReplicaSet", "rs" }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	for name, tt := range map[string]struct {
		replicas int32
		pod      []func(*corev1.Pod)
		by       string
		wrong    bool
	}{
		"none":           {0, nil, deploymentController, false},
		"it has a pod":   {0, []func(*corev1.Pod){of}, deploymentController, true},
		"by another":     {0, []func(*corev1.Pod){of}, "generic-garbage-collector", false},
		"one that goes":  {0, []func(*corev1.Pod){of, deleting}, deploymentController, false},
		"one that ended": {0, []func(*corev1.Pod){of, ended}, deploymentController, false},
		"another's pod":  {0, []func(*corev1.Pod){readiness(corev1.ConditionTrue)}, deploymentController, false},
		"it is to have":  {1, nil, deploymentController, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: "default", UID: "rs"}, Spec: appsv1.ReplicaSetSpec{Replicas: &tt.replicas}}
			h.add(truth.ReplicaSets, watch.Added, set)
			if tt.pod != nil {
				h.pod(watch.Added, "a", "n", tt.pod...)
			}
			h.add(truth.ReplicaSets, watch.Deleted, set)
			h.asked(account+tt.by, "delete", "replicasets", "rs", moment)
			found := Unjustified(truth.Replay(h.events), h.writes, Deaths{})
			require.Equal(t, tt.wrong, len(found) == 1 && found[0].Rule == RuleReplicaSetDeleted, "%v", found)
		})
	}
}

func hashed(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: hash} }
}

func generation(n int64) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Generation = n }
}

// The oracles allow what the product promises, and no more.
func TestPromised(t *testing.T) {
	text, err := os.ReadFile("../../../pkg/nodebreaker/verify.go") // It may be no older than other proofs.
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, promised)
	require.Contains(t, string(text), "nodeAge = 2 * time.Second\n")
}
