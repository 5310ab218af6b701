// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeviceDriver names a driver, and a class of all its devices. Nobody has to run it: the scheduler allocates what
// slices say that there is.
const DeviceDriver = "devices.fresh-kcm.io"

// DeviceTaint is a NoExecute taint that no driver puts on a device or takes off it.
var DeviceTaint = resourceapi.DeviceTaint{Key: Taint.Key, Effect: resourceapi.DeviceTaintEffectNoExecute}

// DeviceClass returns the class of the driver's devices.
func DeviceClass() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: DeviceDriver},
		Spec:       resourceapi.DeviceClassSpec{Selectors: selecting(fmt.Sprintf("device.driver == %q", DeviceDriver))},
	}
}

// DeviceSlice returns a pool of devices on a node, all of it in one slice.
func DeviceSlice(pool, node string, devices int, taints ...resourceapi.DeviceTaint) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: DeviceDriver, NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
			Name:       fmt.Sprintf("device-%02d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"pool": {StringValue: &pool}},
			Taints:     taints,
		})
	}
	return slice
}

// DeviceRule returns a rule that taints a whole pool.
func DeviceRule(pool string, taint resourceapi.DeviceTaint) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec:       resourceapi.DeviceTaintRuleSpec{DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: &pool}, Taint: taint},
	}
}

// DeviceClaim returns a claim of one device of a pool that tolerates DeviceTaint for a time in whole seconds.
func DeviceClaim(name, pool string, toleration time.Duration) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "device",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: DeviceDriver,
				Selectors:       selecting(fmt.Sprintf("device.attributes[%q].pool == %q", DeviceDriver, pool)),
				Tolerations: []resourceapi.DeviceToleration{{
					Key: DeviceTaint.Key, Operator: resourceapi.DeviceTolerationOpExists, Effect: DeviceTaint.Effect,
					TolerationSeconds: new(int64(toleration.Seconds())),
				}},
			},
		}}}},
	}
}

// Claiming returns a pod that belongs to nobody, so that it is lost if it is deleted, and uses a claim. The
// scheduler finds its node.
func Claiming(name, claim string) *corev1.Pod {
	pod := Orphan(name, name, "")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	return pod
}

func selecting(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}
