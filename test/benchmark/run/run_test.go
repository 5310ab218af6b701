// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestOrder(t *testing.T) {
	arms := []controlplane.Arm{"U0", "U1", "P"}
	require.Equal(t, arms, order(arms, 1))
	require.Equal(t, []controlplane.Arm{"P", "U1", "U0"}, order(arms, 2))
	require.Equal(t, []controlplane.Arm{"U0", "U1", "P"}, arms, "not changed")
}

func TestByCluster(t *testing.T) {
	b := func(name string, nodes int, lease time.Duration) spec.Benchmark {
		return spec.Benchmark{Name: name, Nodes: nodes, Lease: metav1.Duration{Duration: lease}}
	}
	generated := b("e", 1, 0)
	generated.LeaseGenerator = true
	handover := b("f", 1, 0)
	handover.Workload.Handover = &spec.Handover{}
	var names [][]string
	for _, group := range byCluster([]spec.Benchmark{b("a", 1, 0), b("b", 2, 0), b("c", 1, 0), b("d", 1, 1), generated, handover}) {
		var in []string
		for _, b := range group {
			in = append(in, b.Name)
		}
		names = append(names, in)
	}
	require.Equal(t, [][]string{{"a", "c"}, {"b"}, {"d"}, {"e"}, {"f"}}, names)
}

func TestHealthy(t *testing.T) {
	node := func(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: ready},
		}}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key})
		}
		return n
	}
	require.True(t, healthy(node(corev1.ConditionTrue, "other")))
	require.False(t, healthy(node(corev1.ConditionUnknown)))
	require.False(t, healthy(node(corev1.ConditionTrue, corev1.TaintNodeUnreachable)))
	require.False(t, healthy(node(corev1.ConditionTrue, "other", corev1.TaintNodeNotReady)))
	require.False(t, healthy(&corev1.Node{}))
}
