// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/kubernetes/pkg/features" // the gates that kube-controller-manager has
)

// newGates returns kube-controller-manager's gates with this project's added, as main makes them.
func newGates(t *testing.T) featuregate.MutableVersionedFeatureGate {
	t.Helper()
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	require.NoError(t, Register(gates))
	return gates
}

//conformance:kep-5647 Feature Enablement and Rollback: the gates are there, and can be switched off
func TestDefaults(t *testing.T) {
	gates := newGates(t)
	for _, gate := range []featuregate.Feature{MonitorInformerStaleness, StaleControllerConsistency} {
		require.True(t, gates.Enabled(gate), gate)
		spec := gates.GetAll()[gate]
		require.Equal(t, featuregate.Beta, spec.PreRelease, gate)
		require.False(t, spec.LockToDefault, gate)
	}
}

func TestRegisterTwice(t *testing.T) {
	gates := newGates(t)
	require.NoError(t, Register(gates), "the same specification again is no error")
	require.Len(t, dependencies[StaleControllerConsistency], 1)
}

//conformance:kep-5647 Feature Enablement and Rollback: AtomicFIFO is required: without it the process says so
func TestExplain(t *testing.T) {
	const upstreamOff = ",StaleControllerConsistencyDaemonSet=false,StaleControllerConsistencyHPA=false,StaleControllerConsistencyJob=false," +
		"StaleControllerConsistencyReplicaSet=false,StaleControllerConsistencyStatefulSet=false,NodeControllerLeaseCircuitBreaker=false"
	tests := map[string]struct {
		set  string
		want []string // the error must say all of it; none means no error
	}{
		"defaults":                    {set: ""},
		"both off":                    {set: "StaleControllerConsistency=false,MonitorInformerStaleness=false"},
		"all off without AtomicFIFO":  {set: "AtomicFIFO=false,StaleControllerConsistency=false,MonitorInformerStaleness=false" + upstreamOff},
		"consistency, no AtomicFIFO":  {set: "AtomicFIFO=false,StaleControllerConsistency=true,MonitorInformerStaleness=false" + upstreamOff, want: []string{"--feature-gates=AtomicFIFO=true", "--feature-gates=StaleControllerConsistency=false"}},
		"default on, no AtomicFIFO":   {set: "AtomicFIFO=false,MonitorInformerStaleness=false" + upstreamOff, want: []string{"--feature-gates=AtomicFIFO=true"}},
		"monitor only, no AtomicFIFO": {set: "AtomicFIFO=false,StaleControllerConsistency=false" + upstreamOff, want: []string{"--feature-gates=MonitorInformerStaleness=false"}},
		"unknown gate":                {set: "StaleControlerConsistency=true", want: []string{"unrecognized feature gate: StaleControlerConsistency"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := Explain(newGates(t).Set(tc.set))
			if len(tc.want) == 0 {
				require.NoError(t, err)
				return
			}
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	other := errors.New("some other error")
	require.Equal(t, other, Explain(other))
	require.NoError(t, Explain(nil))
}
