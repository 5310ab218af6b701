// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"maps"
	"path/filepath"
)

// Arm is one side of a comparison: which kube-controller-manager binary runs, with which feature gates.
type Arm string

const (
	// ArmU0 is stock upstream with its staleness gates off.
	ArmU0 Arm = "U0"
	// ArmU1 is stock upstream with its defaults.
	ArmU1 Arm = "U1"
	// ArmP is this project's binary with its gates on.
	ArmP Arm = "P"
)

var armGates = map[Arm]map[string]bool{
	ArmU0: {
		"NodeControllerLeaseCircuitBreaker":     false,
		"StaleControllerConsistencyDaemonSet":   false,
		"StaleControllerConsistencyHPA":         false,
		"StaleControllerConsistencyJob":         false,
		"StaleControllerConsistencyReplicaSet":  false,
		"StaleControllerConsistencyStatefulSet": false,
	},
	ArmU1: {},
	ArmP: {
		"MonitorInformerStaleness":   true,
		"StaleControllerConsistency": true,
	},
}

// Arms returns every arm, the unprotected ones first.
func Arms() []Arm { return []Arm{ArmU0, ArmU1, ArmP} }

// FeatureGates returns a copy of the gates that the arm sets; gates not named keep the binary's default.
func (a Arm) FeatureGates() map[string]bool { return maps.Clone(armGates[a]) }

// Binary returns the arm's kube-controller-manager below a bin directory.
func (a Arm) Binary(binDir string) string {
	if a == ArmP {
		return filepath.Join(binDir, kubeControllerManager)
	}
	return filepath.Join(binDir, "upstream", kubeControllerManager)
}

func (a Arm) valid() bool { return armGates[a] != nil }
