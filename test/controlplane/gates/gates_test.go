// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	metrics := []byte(`# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="StaleControllerConsistencyJob",stage="BETA"} 0
kubernetes_feature_enabled{name="AtomicFIFO",stage="BETA"} 1
kubernetes_feature_enabled{name="StaleControllerConsistency",stage="BETA"} 1
kubernetes_feature_enabled{name="NodeControllerLeaseCircuitBreaker",stage=""} 1
kubernetes_feature_enabled{name="Other",stage="BETA"} 1
kubernetes_feature_enabled_else{name="MonitorInformerStaleness",stage="BETA"} 1
`)
	gates := parse(metrics, []string{"AtomicFIFO"})
	require.Equal(t, []string{"AtomicFIFO", "NodeControllerLeaseCircuitBreaker", "StaleControllerConsistency"}, Names(gates, true))
	require.Equal(t, []string{"StaleControllerConsistencyJob"}, Names(gates, false))
}

func TestReason(t *testing.T) {
	require.Equal(t, `unrecognized feature gate: "Foo"`,
		reason([]byte("E1120 11:42:46.553695   17169 run.go:72] \"command failed\" err=\"unrecognized feature gate: \\\"Foo\\\"\"\n")))
	require.Equal(t, "some other text", reason([]byte("some\nother   text\n")))
}
