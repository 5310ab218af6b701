// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// attachedFor is how long an arm has to detach a volume. It looks ten times a second.
	attachedFor = 5 * time.Second
	// ruleDetached is broken by the detachment of a volume that a serving node still uses.
	ruleDetached = "volume detached from a node that uses it"
)

// A node was out of service, and is back while node events are held; then the pod that uses a volume on it is gone, while
// the node still has the volume mounted. Every stock arm detaches it at once. When the node is out of service again the volume must be
// detached. The test plays the volume's driver and the kubelet.
var _ = describe(scenario{
	number: 40, title: "node events held: node repaired, and a pod with a volume deleted", label: ordinary,
	incidents: []string{"106710", "141888"},
	hurts:     rig.U1, rules: []string{ruleDetached}, allows: []string{oracle.RuleLiveTainted}, mutants: []without{{"nodes-attachdetach", ruleDetached}}, gaps: []int{13}, idle: true,
	options: rig.Options{KCMArgs: []string{"--node-monitor-grace-period=10m"}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.attach(ctx)
		r.serve(ctx, false)
		r.told(ctx, truth.Nodes)

		hold := r.inject(faultproxy.Target{Resource: truth.Nodes}, faultproxy.Hold{Lists: true})
		r.serve(ctx, true)
		r.passes(ctx, "what was proven before to be too old", hold.Stats().Since, proofAge+time.Second)
		gomega.Expect(r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, servicePod, *metav1.NewDeleteOptions(0))).To(gomega.Succeed())
		deleted := time.Now()
		_ = rig.Wait(ctx, attachedFor, "a detachment", func() (bool, error) { return r.detached(ctx) })
		detached, err := r.detached(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		if detached {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleDetached, Object: serviceNode, Time: time.Now()})
		}
		r.figure("detached, the node up to date after", "%v, %v", detached, rounded(time.Since(deleted)))
		r.proves(hold, 1, proofAge)
		r.putOff(ctx, "attachdetach", truth.Nodes)
		r.figure("lists of nodes by proofs", "%d", r.fencesOf(truth.Nodes, deleted))
		hold.Clear()
		r.told(ctx, truth.Nodes)
		if r.Arm != rig.P {
			return
		}
		r.serve(ctx, false)
		r.figure("detached from a node out of service after", "%v", rounded(r.converges(ctx, "the volume of a node out of service", stepLimit, func() error {
			detached, err := r.detached(ctx)
			if err == nil && !detached {
				err = fmt.Errorf("the volume is still attached to %s", serviceNode)
			}
			return err
		})))
	},
})

// attach has a pod use a volume on the node, which has mounted it then.
func (r *run) attach(ctx context.Context) {
	must := func(_ any, err error) { gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred()) }
	core := r.Client.CoreV1()
	claims := core.PersistentVolumeClaims(metav1.NamespaceDefault)
	// kwok does not know the node, so it is as it is said to be here.
	must(core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: serviceNode,
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}, metav1.CreateOptions{}))
	r.serve(ctx, true)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	must(core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "data"}},
	}}, metav1.CreateOptions{}))
	must(claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: "data", StorageClassName: new(""), Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{}))
	r.eventually(ctx, "the claim to be bound", func() (bool, error) {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound, err
	})

	r.runOnServiceNode(ctx, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
	attachments := r.Client.StorageV1().VolumeAttachments()
	r.eventually(ctx, "a VolumeAttachment", func() (bool, error) {
		all, err := attachments.List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) == 0 {
			return false, err
		}
		_, err = attachments.Patch(ctx, all.Items[0].Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
		return err == nil, err
	})
	r.eventually(ctx, "the node to be told of its volume", func() (bool, error) {
		node, err := core.Nodes().Get(ctx, serviceNode, metav1.GetOptions{})
		if err != nil || len(node.Status.VolumesAttached) == 0 {
			return false, err
		}
		_, err = core.Nodes().Patch(ctx, serviceNode, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"volumesInUse":[%q]}}`, node.Status.VolumesAttached[0].Name), metav1.PatchOptions{}, "status")
		return err == nil, err
	})
}

// detached reports whether the volume's attachment is gone, or going.
func (r *run) detached(ctx context.Context) (bool, error) {
	all, err := r.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	return err == nil && (len(all.Items) == 0 || all.Items[0].DeletionTimestamp != nil), err
}
