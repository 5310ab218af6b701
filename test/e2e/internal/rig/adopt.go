// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import "github.com/fresh-kcm/fresh-kcm/test/controlplane"

// Adopt makes another kube-controller-manager the one that must live and lead to the end, where a scenario
// ends or replaces the first.
func (r *Rig) Adopt(kcm *controlplane.KCM) {
	r.KCM, r.pid = kcm, kcm.PID()
}
