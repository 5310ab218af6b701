// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

func TestBadFaults(t *testing.T) {
	p := &Player{}
	require.EqualError(t, p.Run(t.Context(), control.Fault{Kind: control.Hold, Name: "nodes"}, nil), "--for 0s: the duration must be positive")
	require.EqualError(t, p.Run(t.Context(), control.Fault{Kind: "flood", For: 1}, nil), `there is no fault "flood"`)
}

func TestObserverSaysWhatIsNew(t *testing.T) {
	clock := regexp.MustCompile(`^ *[0-9.]+s  `)
	var said []string
	o := &observer{
		report:  &report{begin: time.Now(), say: func(text string) { said = append(said, clock.ReplaceAllString(text, "")) }},
		gr:      nodes,
		waiting: map[string]bool{},
	}
	age := 12.4
	cache := stalenessz.StalenesszCache{Resource: "nodes", State: "quiet", AgeSeconds: &age}
	other := stalenessz.StalenesszCache{Resource: "pods", State: "stalled", Reason: "Watch"}
	wait := stalenessz.StalenesszWait{Controller: "daemonset", Owner: "default/sample", Resource: "nodes", For: "a proof"}
	elsewhere := stalenessz.StalenesszWait{Controller: "job", Owner: "default/other", Group: "batch", Resource: "jobs", For: "a proof"}
	page := func(waits ...stalenessz.StalenesszWait) *stalenessz.Stalenessz {
		return &stalenessz.Stalenessz{Caches: []stalenessz.StalenesszCache{other, cache}, Waits: waits}
	}
	check := func(page *stalenessz.Stalenessz, healthy bool, want ...string) {
		t.Helper()
		said = nil
		require.Equal(t, healthy, o.page(page))
		require.Equal(t, want, said)
	}
	check(page(), true, "Fresh KCM: its cache of nodes is quiet, at most 12 s old")
	check(page(), true)
	cache.State, cache.Reason, cache.Detail = "stalled", "Watch", "one is missing"
	check(page(wait, elsewhere), false,
		"Fresh KCM: daemonset default/sample waits for nodes: a proof",
		"Fresh KCM: job default/other waits for jobs.batch: a proof",
		"Fresh KCM: its cache of nodes is stalled, at most 12 s old (Watch: one is missing)")
	check(page(wait, elsewhere), false)
	cache.State, cache.Reason, cache.AgeSeconds = "unknown", "Timeout", nil
	check(page(elsewhere), false,
		"Fresh KCM: no longer waits: daemonset default/sample waits for nodes: a proof",
		"Fresh KCM: its cache of nodes is unknown, of unknown age (Timeout: one is missing)")

	o.state, o.waiting = "", nil
	check(&stalenessz.Stalenessz{}, true, "Fresh KCM: no age is measured for nodes (MonitorInformerStaleness is off)")
	check(&stalenessz.Stalenessz{}, true)
}

func TestEndedWatches(t *testing.T) {
	metrics := []byte(`# TYPE informer_staleness_ended_watches_total counter
informer_staleness_ended_watches_total{group="",resource="nodes",version="v1"} 2
informer_staleness_ended_watches_total{group="apps",resource="daemonsets",version="v1"} 3
informer_staleness_ended_watches_total{group="metrics.k8s.io",resource="nodes",version="v1"} 4
`)
	require.Equal(t, 2, endedWatches(metrics, nodes))
	require.Equal(t, 3, endedWatches(metrics, daemonSets))
	require.Zero(t, endedWatches(metrics, pods))
}

func TestRefusals(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := os.Create(path)
	require.NoError(t, err)
	write := func(seconds int, verb, resource, user string, code int) {
		e := controlplane.AuditEvent{Verb: verb, RequestReceivedTimestamp: begin.Add(time.Duration(seconds) * time.Second)}
		e.User.Username, e.ObjectRef.Resource, e.ResponseStatus.Code = user, resource, code
		require.NoError(t, json.NewEncoder(log).Encode(e))
	}
	const controller = "system:serviceaccount:kube-system:daemon-set-controller"
	write(-1, "create", "pods", controller, 403)
	write(1, "create", "pods", controller, 403)
	write(2, "create", "pods", controller, 201)
	write(3, "create", "events", controller, 403)
	write(4, "create", "pods", "somebody", 403)
	n := &refusals{}
	require.NoError(t, n.read(path, begin))
	require.Equal(t, 1, n.count)
	write(5, "create", "pods", controller, 403)
	require.NoError(t, n.read(path, begin))
	require.Equal(t, 2, n.count)
	require.Equal(t, begin.Add(5*time.Second), n.last)
}

func TestHealth(t *testing.T) {
	node := &corev1.Node{}
	require.Equal(t, "Ready=Unknown, without taints", health(node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.Equal(t, healthy, health(node))
	node.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}
	require.Equal(t, "Ready, tainted a:NoExecute", health(node))
}

func TestWatch(t *testing.T) {
	ok, err := watch(t.Context(), time.Hour, func(context.Context) bool { return true })
	require.True(t, ok)
	require.NoError(t, err)
	ok, err = watch(t.Context(), time.Millisecond, func(context.Context) bool { return false })
	require.False(t, ok)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = watch(ended, time.Hour, func(context.Context) bool { return false })
	require.ErrorIs(t, err, errStopped)
}

func TestStockIsSaidOfEveryResource(t *testing.T) {
	for _, gr := range []schema.GroupResource{nodes, pods, daemonSets, statefulSets, leases, {Resource: "services"}} {
		require.Contains(t, stockHolding(gr), "does not notice a stalled watch", gr)
	}
}

func TestWhatToTryIsJSON(t *testing.T) {
	require.True(t, json.Valid([]byte(selectTier)))
}
