// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	onlyDevice            = "single"
	usingPod, awaitingPod = "using", "awaiting"
	// ruleDevice is broken by a second pod that gets a device in use.
	ruleDevice = "device in use given to another pod"
)

// A pod with the only device has ended, and is made again under its name while pod events are held. Another pod waits for
// the device. Every stock arm takes the new pod for the old one's replacement, releases its claim, and the other gets the device,
// too. When the pod ends, the other must get it.
var _ = describe(scenario{
	number: 38, title: "pod events held: a pod with a claim that had ended made again under its name", label: ordinary,
	hurts: rig.U1, rules: []string{ruleDevice}, mutants: []without{{"proof-resourceclaim", ruleDevice}}, gaps: []int{19}, idle: true,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		r.oneDevice(ctx)
		r.claiming(ctx, usingPod)
		r.runs(ctx, usingPod, 1)
		gomega.Expect(r.setPhase(ctx, usingPod, corev1.PodSucceeded)).To(gomega.Succeed())
		r.figure("claim of an ended pod released after", "%v", rounded(r.converges(ctx, "the claim is released", stepLimit, func() error { return r.allocated(ctx, false) })))
		r.told(ctx, truth.Pods)

		hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{})
		gomega.Expect(pods.Delete(ctx, usingPod, *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		var uid types.UID
		r.eventually(ctx, "the pod to run again", func() (bool, error) {
			pod, err := pods.Get(ctx, usingPod, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				r.claiming(ctx, usingPod) // Perhaps not for the first time: kwok finishes deletions by name.
				return false, nil
			}
			if err != nil {
				return false, err
			}
			uid = pod.UID
			return pod.Status.Phase == corev1.PodRunning, nil
		})
		r.claiming(ctx, awaitingPod)
		r.passes(ctx, "the controller and the scheduler to act", time.Now(), proofAge+8*time.Second)
		r.proves(hold, 2, proofAge+8*time.Second)
		r.putOff(ctx, "resourceclaim", truth.Pods)
		if r.Arm == rig.P {
			r.figure("live reads", "%.0f", series(ctx, r, "stale_controller_live_reads_total", `controller="resourceclaim"`, `resource="pods"`))
		}
		r.deviceIsKept(ctx, uid)
		hold.Clear()
		r.told(ctx, truth.Pods)

		r.deviceIsGivenOn(ctx)
	},
})

// oneDevice makes a device, and a claim of it for each pod.
func (r *run) oneDevice(ctx context.Context) {
	ginkgo.GinkgoHelper()
	devices := r.Client.ResourceV1()
	_, err := devices.DeviceClasses().Create(ctx, workload.DeviceClass(), metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = devices.ResourceSlices().Create(ctx, workload.DeviceSlice(onlyDevice, r.Cluster.Nodes().Names()[0], 1), metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, name := range []string{usingPod, awaitingPod} {
		_, err = devices.ResourceClaims(metav1.NamespaceDefault).Create(ctx, workload.DeviceClaim(name, onlyDevice, time.Minute), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// claimInUse is the claim of the pod that uses the device.
func (r *run) claimInUse(ctx context.Context) *resourceapi.ResourceClaim {
	ginkgo.GinkgoHelper()
	c, err := r.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(ctx, usingPod, metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return c
}

// allocated says whether that claim is as wanted.
func (r *run) allocated(ctx context.Context, want bool) error {
	ginkgo.GinkgoHelper()
	if c := r.claimInUse(ctx); (c.Status.Allocation != nil) != want {
		return fmt.Errorf("%+v; want it allocated: %t", c.Status, want)
	}
	return nil
}

// deviceIsKept judges whether only the pod with this UID runs with the device.
func (r *run) deviceIsKept(ctx context.Context, uid types.UID) {
	ginkgo.GinkgoHelper()
	claim := r.claimInUse(ctx)
	r.figure("still allocated, reserved", "%t, %t", claim.Status.Allocation != nil, reservedFor(claim, uid))
	r.figure("both pods run with the device", "%t", r.isRunning(usingPod) && r.isRunning(awaitingPod))
	if r.isRunning(awaitingPod) {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleDevice, Object: awaitingPod, Time: time.Now(), Detail: "pod " + usingPod + " runs with it"})
	}
}

// deviceIsGivenOn has the pod end that uses the device, and waits until the other has it.
func (r *run) deviceIsGivenOn(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.setPhase(ctx, usingPod, corev1.PodSucceeded)).To(gomega.Succeed())
	r.figure("given to the other pod after", "%v", rounded(r.converges(ctx, "the other pod gets the device", stepLimit, func() error {
		if !r.isRunning(awaitingPod) {
			return fmt.Errorf("pod %s does not run", awaitingPod)
		}
		return r.allocated(ctx, false)
	})))
}

// claiming makes a pod that uses the claim of its name.
func (r *run) claiming(ctx context.Context, name string) {
	ginkgo.GinkgoHelper()
	pod := workload.Claiming(name, name)
	pod.Labels["group"] = name
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// allocate gives a device to a claim, and that to a pod, as a scheduler does.
func (r *run) allocate(ctx context.Context, claim *resourceapi.ResourceClaim, pod string, uid types.UID) error {
	claims := r.Client.ResourceV1().ResourceClaims(claim.Namespace)
	claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
	claim, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	claim.Status = resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: claim.Spec.Devices.Requests[0].Name, Driver: workload.DeviceDriver, Pool: onlyDevice, Device: pod},
		}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: uid}},
	}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// isRunning reports whether the pod runs.
func (r *run) isRunning(pod string) bool {
	e, there := r.Truth.Find(truth.Pods, metav1.NamespaceDefault, pod, truth.Latest)
	return there && e.Object.(*corev1.Pod).Status.Phase == corev1.PodRunning
}

func reservedFor(claim *resourceapi.ResourceClaim, uid types.UID) bool {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.UID == uid {
			return true
		}
	}
	return false
}
