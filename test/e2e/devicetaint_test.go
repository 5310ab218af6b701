// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// slicedPool's devices are tainted in their ResourceSlice, ruledPool's by a DeviceTaintRule.
	slicedPool, ruledPool = "sliced", "ruled"
	devicePods            = 10
	laterDevicePods       = 3
)

// The devices of two pools are tainted and the taints are taken away again while what says so is held: the slices
// of the one, the rules of the other. When the toleration of the claims runs out every stock arm deletes their pods,
// whose devices are healthy (gap 1, for devices). Afterwards the taints come back, and all pods have
// to go.
var _ = describe(scenario{
	number: 4, title: "ResourceSlices and DeviceTaintRules held, device taints gone before the toleration runs out", label: long,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"device-taint-guard", oracle.RuleUnjustified}}, gaps: []int{1},
	options: rig.Options{
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}},
		Record: []schema.GroupResource{
			truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions,
			truth.ResourceClaims, truth.ResourceSlices, truth.DeviceTaintRules,
		},
	},
	idle:    true,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.DeviceTaintEvictions)
		devices := r.Client.ResourceV1()
		_, err := devices.DeviceClasses().Create(ctx, workload.DeviceClass(), metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		for _, pool := range []string{slicedPool, ruledPool} {
			slice := workload.DeviceSlice(pool, r.Cluster.Nodes().Names()[0], devicePods+laterDevicePods)
			_, err := devices.ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.runDevicePods(ctx, "victim", devicePods, taintedToleration)

		r.taintDevices(ctx)
		due := time.Now().Add(taintedToleration)
		r.told(ctx, truth.ResourceSlices)
		r.told(ctx, truth.DeviceTaintRules)
		heldSlices := r.inject(faultproxy.Target{Resource: truth.ResourceSlices}, faultproxy.Hold{})
		heldRules := r.inject(faultproxy.Target{Resource: truth.DeviceTaintRules}, faultproxy.Hold{})
		r.untaintDevices(ctx)
		late := time.Until(due)
		r.figure("V taints gone before due", "%v", rounded(late))
		if late <= 0 {
			r.unproven = append(r.unproven, "the taints were gone too late")
		}
		r.passes(ctx, "the toleration to run out", due, taintedWindow)
		r.figure("pods deleted while held: by slice", "%d of %d", r.evicted("victim-"+slicedPool), devicePods)
		r.figure("pods deleted while held: by rule", "%d of %d", r.evicted("victim-"+ruledPool), devicePods)
		r.proves(heldSlices, 1, taintedToleration)
		r.proves(heldRules, 1, taintedToleration)
		heldSlices.Clear()
		heldRules.Clear()
		r.told(ctx, truth.ResourceSlices)
		r.told(ctx, truth.DeviceTaintRules)

		r.runDevicePods(ctx, "later", laterDevicePods, time.Second)
		r.taintDevices(ctx)
		r.converges(ctx, "evictions go on", stepLimit, func() error {
			for _, pool := range []string{slicedPool, ruledPool} {
				if n := r.evicted("later-" + pool); n < laterDevicePods {
					return fmt.Errorf("%d of %d pods evicted from the tainted devices of pool %s", n, laterDevicePods, pool)
				}
				if n := r.evicted("victim-" + pool); n < devicePods {
					return fmt.Errorf("%d of %d pods evicted whose toleration has run out, pool %s", n, devicePods, pool)
				}
			}
			return nil
		})
	},
})

// runDevicePods runs pods in each pool, whose claims tolerate the taint for a time, and waits until the KCM knows
// them.
func (r *run) runDevicePods(ctx context.Context, prefix string, count int, toleration time.Duration) {
	ginkgo.GinkgoHelper()
	for _, pool := range []string{slicedPool, ruledPool} {
		group := prefix + "-" + pool
		for i := range count {
			name := fmt.Sprintf("%s-%02d", group, i)
			claim := workload.DeviceClaim(name, pool, toleration)
			_, err := r.Client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			pod := workload.Claiming(name, name)
			pod.Labels["group"] = group
			_, err = r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.runs(ctx, group, count)
	}
	r.told(ctx, truth.ResourceClaims)
}

// taintDevices taints the devices of both pools, each in its way, and waits until the truth has it.
func (r *run) taintDevices(ctx context.Context) {
	ginkgo.GinkgoHelper()
	r.taintSlice(ctx, workload.DeviceTaint)
	_, err := r.Client.ResourceV1().DeviceTaintRules().Create(ctx, workload.DeviceRule(ruledPool, workload.DeviceTaint), metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.devicesTainted(ctx, true)
}

// untaintDevices undoes taintDevices.
func (r *run) untaintDevices(ctx context.Context) {
	ginkgo.GinkgoHelper()
	r.taintSlice(ctx)
	gomega.Expect(r.Client.ResourceV1().DeviceTaintRules().Delete(ctx, ruledPool, metav1.DeleteOptions{})).To(gomega.Succeed())
	r.devicesTainted(ctx, false)
}

func (r *run) taintSlice(ctx context.Context, taints ...resourceapi.DeviceTaint) {
	ginkgo.GinkgoHelper()
	slices := r.Client.ResourceV1().ResourceSlices()
	slice, err := slices.Get(ctx, slicedPool, metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].Taints = taints
	}
	_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

func (r *run) devicesTainted(ctx context.Context, want bool) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, fmt.Sprintf("the truth to say that the devices are tainted: %t", want), func() (bool, error) {
		for _, pool := range []string{slicedPool, ruledPool} {
			if oracle.DeviceTainted(r.Truth, workload.DeviceDriver, pool, "device-00", truth.Latest) != want {
				return false, nil
			}
		}
		return true, nil
	})
}
