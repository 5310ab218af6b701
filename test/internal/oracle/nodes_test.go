// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// In a history every event comes a second after the one before.

func (h *history) renewed(node string) { h.lease(node, int64(h.rv)+1, "") }

func (h *history) lease(node string, renewed int64, label string) {
	h.add(truth.Leases, watch.Modified, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node, UID: types.UID("lease-" + node), Labels: map[string]string{"label": label}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(renewed, 0)}},
	})
}

func ready(status corev1.ConditionStatus, heartbeat int64) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.Unix(heartbeat, 0)}}
	}
}

func tainted(taints ...corev1.Taint) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = taints }
}

// idle lets seconds pass.
func (h *history) idle(seconds uint64) { h.rv += seconds }

var unreachable = corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}

func TestDeaths(t *testing.T) {
	deaths := Deaths{Nodes: sets.New("dead"), Grace: 20 * time.Second}
	tests := map[string]struct {
		history func(*history)
		want    map[string]int
	}{
		"the dead one in time": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.renewed("dead")
			h.idle(20)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0))
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0), tainted(unreachable))
		}, nil},
		"the dead one too early": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.renewed("dead")
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0))
		}, map[string]int{"S2 " + RuleMarkedEarly: 1}},
		"its status was a sign of life": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.renewed("dead")
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionTrue, 17))
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 17))
		}, map[string]int{"S2 " + RuleMarkedEarly: 1}},
		"an edit of its lease was none": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.lease("dead", 1, "")
			h.idle(15)
			h.lease("dead", 1, "edited")
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0))
		}, nil},
		"set back, its lease was a sign of life": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.lease("dead", 1000, "")
			h.idle(15)
			h.lease("dead", 400, "")
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0))
		}, map[string]int{"S2 " + RuleMarkedEarly: 1}},
		"set back, its status was a sign of life": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 1000))
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionTrue, 400))
			h.idle(15)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 400))
		}, map[string]int{"S2 " + RuleMarkedEarly: 1}},
		"restored, its lease was none": {func(h *history) {
			h.node(watch.Added, "dead", ready(corev1.ConditionTrue, 0))
			h.idle(10)
			h.lease("dead", 9, "")
			h.idle(15)
			h.lease("dead", 3, "")
			h.events[truth.Leases][1].RV = 3
			h.idle(10)
			h.node(watch.Modified, "dead", ready(corev1.ConditionUnknown, 0))
		}, nil},
		"one that has joined and never gave a sign, at once": {func(h *history) {
			h.node(watch.Added, "n1")
			h.idle(2)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
		}, map[string]int{"S2 " + RuleLiveMarked: 1}},
		"one that has joined and never gave a sign, after the grace period": {func(h *history) {
			h.node(watch.Added, "n1")
			h.idle(20)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
		}, nil},
		"another one that was not silent for long": {func(h *history) {
			h.node(watch.Added, "n1", ready(corev1.ConditionTrue, 0))
			h.renewed("n1")
			h.idle(15)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0), tainted(unreachable))
			h.node(watch.Modified, "n1", ready(corev1.ConditionTrue, 103), tainted(unreachable))
		}, map[string]int{"S2 " + RuleLiveMarked: 1, "S2 " + RuleLiveTainted: 1}},
		"another one that nobody killed, and that was silent": {func(h *history) {
			h.node(watch.Added, "n1", ready(corev1.ConditionTrue, 0))
			h.renewed("n1")
			h.idle(20)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0), tainted(unreachable))
		}, nil},
		"another one, silent only the first time": {func(h *history) {
			h.node(watch.Added, "n1", ready(corev1.ConditionTrue, 0))
			h.renewed("n1")
			h.idle(20)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
			h.renewed("n1")
			h.node(watch.Modified, "n1", ready(corev1.ConditionTrue, 0))
			h.idle(15)
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0))
			h.node(watch.Modified, "n1", ready(corev1.ConditionUnknown, 0), tainted(unreachable))
		}, map[string]int{"S2 " + RuleLiveMarked: 1, "S2 " + RuleLiveTainted: 1}},
		"tainted from the beginning": {func(h *history) {
			h.node(watch.Added, "n1", ready(corev1.ConditionTrue, 0), tainted(unreachable))
			h.node(watch.Modified, "n1", ready(corev1.ConditionTrue, 1), tainted(unreachable))
			h.node(watch.Modified, "n1", ready(corev1.ConditionTrue, 1))
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			tt.history(h)
			if got := Count(Unjustified(truth.Replay(h.events), nil, deaths)); !maps.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSilences(t *testing.T) {
	h := &history{}
	h.renewed("a") // 1
	h.idle(3)
	h.renewed("a") // 5
	h.renewed("b") // 6
	h.idle(7)
	h.renewed("a") // 14
	record := truth.Replay(h.events)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, tt := range []struct {
		from, to int64
		want     map[string]time.Duration
	}{
		{0, 20, map[string]time.Duration{"a": 9 * time.Second, "b": 14 * time.Second, "never": 20 * time.Second}},
		{6, 10, map[string]time.Duration{"a": 4 * time.Second}},
	} {
		require.Equal(t, tt.want, Silences(record, at(tt.from), at(tt.to), slices.Sorted(maps.Keys(tt.want))...))
	}
	if got := LastSign(record)["a"]; !got.Equal(at(14)) {
		t.Errorf("last sign of a at %v", got)
	}
}

func TestTaintEvictions(t *testing.T) {
	taint := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute}
	tolerating := func(seconds *int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = nil
			p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds}}
		}
	}
	owned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	for name, tt := range map[string]struct {
		by      string
		pod     func(*corev1.Pod)
		history func(*history)
		wrong   bool
	}{
		"not tolerated":         {NodeController, owned, func(h *history) { h.node(watch.Modified, "n", tainted(taint)) }, false},
		"by another controller": {"job-controller", owned, func(h *history) { h.node(watch.Modified, "n", tainted(taint)) }, true},
		"no taint":              {NodeController, owned, func(*history) {}, true},
		"tolerated for ever":    {NodeController, tolerating(nil), func(h *history) { h.node(watch.Modified, "n", tainted(taint)) }, true},
		"tolerated still":       {NodeController, tolerating(ptr.To[int64](10)), func(h *history) { h.node(watch.Modified, "n", tainted(taint)); h.idle(5) }, true},
		"tolerated long enough": {NodeController, tolerating(ptr.To[int64](10)), func(h *history) { h.node(watch.Modified, "n", tainted(taint)); h.idle(10) }, false},
		"taken off":             {NodeController, owned, func(h *history) { h.node(watch.Modified, "n", tainted(taint)); h.node(watch.Modified, "n") }, true},
		"NoSchedule evicts none": {NodeController, owned, func(h *history) {
			h.node(watch.Modified, "n", tainted(corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}))
		}, true},
		"taken off and put on": {NodeController, tolerating(ptr.To[int64](10)), func(h *history) {
			h.node(watch.Modified, "n", tainted(taint))
			h.idle(10)
			h.node(watch.Modified, "n")
			h.node(watch.Modified, "n", tainted(taint))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.node(watch.Added, "n")
			h.pod(watch.Added, "a", "n", tt.pod)
			tt.history(h)
			h.pod(watch.Deleted, "a", "n", tt.pod)
			h.wrote(tt.by, "delete", "pods", "a", 200)
			h.writes[0].RequestReceivedTimestamp = h.writes[0].StageTimestamp
			found := Unjustified(truth.Replay(h.events), h.writes, Deaths{}, TaintEvictions)
			if (len(found) == 1) != tt.wrong {
				t.Errorf("found %v", found)
			}
		})
	}
	t.Run("tainted only afterwards", func(t *testing.T) {
		h := &history{}
		h.node(watch.Added, "n")
		h.pod(watch.Added, "a", "n", owned)
		h.pod(watch.Deleted, "a", "n", owned)
		h.wrote(NodeController, "delete", "pods", "a", 200)
		h.node(watch.Modified, "n", tainted(taint))
		if found := Unjustified(truth.Replay(h.events), h.writes, Deaths{}, TaintEvictions); len(found) != 1 {
			t.Errorf("found %v", found)
		}
	})
}

// A toleration counts from the arrival of the request that tainted the node: whoever evicts may have known of it before the recorder did.
func TestTolerationsCountFromTheRequest(t *testing.T) {
	tolerant := func(p *corev1.Pod) {
		p.OwnerReferences = nil
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(10))}}
	}
	for early, want := range map[time.Duration]int{400 * time.Millisecond: 0, 300 * time.Millisecond: 1} {
		h := &history{}
		h.node(watch.Added, "n")
		h.pod(watch.Added, "a", "n", tolerant)
		h.node(watch.Modified, "n", tainted(corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute}))
		h.asked("admin", "patch", "nodes", "n", early, core)
		h.idle(9)
		h.pod(watch.Deleted, "a", "n", tolerant)
		h.asked(account+NodeController, "delete", "pods", "a", 700*time.Millisecond)
		h.asked("admin", "delete", "pods", "a", 600*time.Millisecond) // so that there is no sample of the lag
		require.Len(t, Unjustified(truth.Replay(h.events), h.writes, Deaths{}, TaintEvictions), want, early)
	}
}

func TestReads(t *testing.T) {
	const agent = "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/abc"
	read := func(second int64, verb, resource, namespace, agent, query string) controlplane.AuditEvent {
		e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: verb, UserAgent: agent, RequestURI: "/?" + query, RequestReceivedTimestamp: time.Unix(second, 0)}
		e.ObjectRef.Resource, e.ObjectRef.Namespace = resource, namespace
		return e
	}
	account := agent + "/system:serviceaccount:kube-system:node-controller"
	events := []controlplane.AuditEvent{
		read(0, "get", "leases", "kube-node-lease", account, ""), // before
		read(1, "get", "leases", "kube-node-lease", account, ""),
		read(2, "list", "leases", "kube-node-lease", account, "limit=500"),
		read(3, "get", "nodes", "", account, ""),
		read(3, "get", "nodes", "", account, "resourceVersion=0"),
		read(3, "get", "pods", "default", account, ""),
		read(4, "watch", "leases", "", account, ""),
		read(4, "list", "leases", "", agent+"/shared-informers", ""),
		read(5, "get", "leases", "kube-system", agent+"/leader-election", ""),
		read(5, "list", "leases", "", agent+" freshness", "limit=1"),
		read(6, "get", "leases", "kube-node-lease", "kubectl/v1.37.0", ""),
		{Stage: "ResponseComplete", Verb: "update"}, // a conflict, below
		read(7, "get", "nodes", "", account, ""),
		read(70, "get", "leases", "kube-node-lease", account, ""),
		read(80, "get", "leases", "kube-node-lease", account, ""), // after
	}
	conflict := &events[slices.IndexFunc(events, func(e controlplane.AuditEvent) bool { return e.Verb == "update" })]
	conflict.ObjectRef.Resource, conflict.ResponseStatus.Code = "nodes", http.StatusConflict
	reads := ReadsIn(events, time.Unix(1, 0), time.Unix(80, 0))
	if len(reads.Live) != 4 || len(reads.Probes) != 1 {
		t.Errorf("%d live reads and %d probes", len(reads.Live), len(reads.Probes))
	}
	if n := Busiest(reads.Live, time.Minute); n != 3 {
		t.Errorf("most in a minute: %d", n)
	}
}
