// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// firsts is when something was first so, since the kubelet of the first node has stopped.
type firsts map[string]time.Duration

// dies has the first node's kubelet stop while all requests for nodes, pods and leases take delay, and returns when the node was marked and tainted, and its
// pods marked and deleted.
func dies(t *testing.T, arm arms.Arm, delay time.Duration) firsts {
	t.Helper()
	seen := firsts{}
	synctest.Test(t, func(t *testing.T) {
		const length = 20 * time.Minute
		s := schedule.Schedule{Nodes: 4, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "daemons"}, {Kind: "ReplicaSet", Name: "replicas", Replicas: 4}}}
		server, f, tr, _ := start(t, arm, s)
		time.Sleep(2 * time.Minute)
		for _, resource := range []string{"nodes", "pods", "leases"} {
			f.Do(schedule.Step{Action: schedule.SlowReads, Target: resource, Delay: delay, For: length}, tr.After)
			f.Do(schedule.Step{Action: schedule.SlowWrites, Target: resource, Delay: delay, For: length}, tr.After)
		}
		tr.Do(schedule.Step{Action: schedule.KillNode, N: 0, For: time.Hour})
		died := time.Now()
		first := func(what string, so bool) {
			if _, was := seen[what]; so && !was {
				seen[what] = time.Since(died)
			}
		}
		for time.Since(died) < length {
			time.Sleep(100 * time.Millisecond)
			server.Look(func(truth model.Truth) {
				node := truth.Get(model.Nodes, "", traffic.NodeName(0)).(*corev1.Node)
				first("marked", slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
				}))
				first("tainted", slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }))
				on := func(so func(*corev1.Pod) bool) bool {
					return slices.ContainsFunc(truth.List(model.Pods), func(o model.Object) bool {
						p := o.(*corev1.Pod)
						return p.Spec.NodeName == node.Name && so(p)
					})
				}
				first("pods marked", on(func(p *corev1.Pod) bool {
					return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionFalse
				}))
				first("pods deleted", on(func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }))
			})
		}
	})
	return seen
}

// On a server that takes long for each request, longer than any proof is waited for, a node that dies is marked and tainted, and its pods are, later
// than on stock by what a few requests take.
func TestANodeDiesWhileTheServerIsSlow(t *testing.T) {
	for _, delay := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 7 * time.Second, 10 * time.Second, 15 * time.Second} {
		t.Run(delay.String(), func(t *testing.T) {
			stock, ours := dies(t, arms.Stock, delay), dies(t, arms.Ours, delay)
			t.Logf("stock %v, ours %v", stock, ours)
			for what, at := range stock {
				require.Contains(t, ours, what)
				require.LessOrEqual(t, ours[what], at+6*delay+10*time.Second, what)
			}
			require.Len(t, stock, 4)
			require.LessOrEqual(t, ours["pods deleted"]-ours["tainted"], stock["pods deleted"]-stock["tainted"]+delay+time.Second, "an eviction takes one proof more")
		})
	}
}
