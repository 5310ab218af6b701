// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// DeviceTaintEvictions judges the deletions by device taint eviction on the true state just before the deletion:
// a device that is allocated to a claim of the pod must have a NoExecute taint, from its slice or from a rule for its
// whole pool. How long the taint is tolerated it leaves open. It needs resourceclaims, resourceslices and
// devicetaintrules recorded.
func DeviceTaintEvictions(t *truth.Recorder, d Deletion) string {
	if d.By != DeviceTaintEvictionController {
		return ""
	}
	for _, used := range d.Pod.Spec.ResourceClaims {
		claim, ok := t.Find(truth.ResourceClaims, d.Pod.Namespace, claimOf(used), d.RV-1)
		if !ok || claim.Object.(*resourceapi.ResourceClaim).Status.Allocation == nil {
			continue
		}
		for _, device := range claim.Object.(*resourceapi.ResourceClaim).Status.Allocation.Devices.Results {
			if DeviceTainted(t, device.Driver, device.Pool, device.Device, d.RV-1) {
				return "its device " + device.Device + " is tainted"
			}
		}
	}
	return ""
}

func claimOf(c corev1.PodResourceClaim) string {
	if c.ResourceClaimName == nil {
		return ""
	}
	return *c.ResourceClaimName
}

// DeviceTainted reports whether a device has a NoExecute taint at a resource version.
func DeviceTainted(t *truth.Recorder, driver, pool, device string, rv uint64) bool {
	for _, e := range t.At(truth.DeviceTaintRules, rv) {
		rule := e.Object.(*resourceapi.DeviceTaintRule).Spec
		if s := rule.DeviceSelector; s != nil && s.Pool != nil && *s.Pool == pool && rule.Taint.Effect == resourceapi.DeviceTaintEffectNoExecute {
			return true
		}
	}
	for _, e := range t.At(truth.ResourceSlices, rv) {
		slice := e.Object.(*resourceapi.ResourceSlice).Spec
		if slice.Driver != driver || slice.Pool.Name != pool {
			continue
		}
		for _, d := range slice.Devices {
			if d.Name == device && slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool {
				return taint.Effect == resourceapi.DeviceTaintEffectNoExecute
			}) {
				return true
			}
		}
	}
	return false
}
