// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Arm is one side of a comparison.
type Arm string

// The arms of every comparison, and one more that proves that a scenario's protection is what makes it pass.
const (
	U0 = Arm(controlplane.ArmU0)
	U1 = Arm(controlplane.ArmU1)
	P  = Arm(controlplane.ArmP)
	// Off is P's binary with its gates off: it must look like U1. Off0 has upstream's staleness gates off, too,
	// and must look like U0.
	Off  Arm = "OFF"
	Off0 Arm = "OFF0"
)

// ParseArm reads an arm's name.
func ParseArm(name string) (Arm, error) {
	switch arm := Arm(name); arm {
	case U0, U1, P, Off, Off0:
		return arm, nil
	}
	return "", fmt.Errorf("unknown arm %q: there are %s, %s, %s, %s and %s", name, U0, U1, P, Off, Off0)
}

// KCM returns the options that make a kube-controller-manager of this arm.
func (a Arm) KCM() controlplane.KCMOptions {
	gates := map[string]bool{}
	switch a {
	case Off0:
		gates = controlplane.ArmU0.FeatureGates()
	case Off:
	default:
		return controlplane.KCMOptions{Arm: controlplane.Arm(a)}
	}
	gates[string(features.StaleControllerConsistency)] = false
	gates[string(features.MonitorInformerStaleness)] = false
	return controlplane.KCMOptions{Arm: controlplane.ArmP, ProcessOptions: controlplane.ProcessOptions{FeatureGates: gates}}
}
