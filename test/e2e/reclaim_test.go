// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// boundAgain is a volume that a claim of the same name gets after another has released it.
	boundAgain = "bound-again"
	// volumeSync is how often the controller looks at all volumes (--pvclaimbinder-sync-period).
	volumeSync = 15 * time.Second
	// ruleReclaimed is broken by the end of a volume that somebody has a claim to.
	ruleReclaimed = "volume reclaimed that has a claim"
)

// A volume that was retained is given to a new claim, and is to be deleted with that, while claims are held. Every stock arm reads the volume live, and not
// the claim, which its cache lacks: it deletes the volume with all that is in it. Once the claim is gone indeed, the volume must go.
var _ = describe(scenario{
	number: 52, title: "persistentvolumeclaims held: a released volume bound again", label: ordinary,
	hurts: rig.U1, rules: []string{ruleReclaimed}, mutants: []without{{"claim-persistentvolume-binder", ruleReclaimed}}, gaps: []int{20}, idle: true,
	options: rig.Options{Record: []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.PersistentVolumeClaims}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		// The plugin deletes below /tmp only.
		content, err := os.MkdirTemp("/tmp", "fresh-kcm-volume-")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ginkgo.DeferCleanup(os.RemoveAll, content)
		gomega.Expect(createClaim(ctx, r, "other", nil)).To(gomega.Succeed()) // So that there is something to be told of.
		r.releasedVolume(ctx, content)
		r.told(ctx, truth.PersistentVolumeClaims)

		hold := r.inject(faultproxy.Target{Resource: truth.PersistentVolumeClaims}, faultproxy.Hold{})
		claim := r.claimOfVolume(ctx)
		_, err = r.Client.CoreV1().PersistentVolumes().Patch(ctx, boundAgain, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"persistentVolumeReclaimPolicy":"Delete","claimRef":{"namespace":%q,"name":%q,"uid":%q}}}`, claim.Namespace, claim.Name, claim.UID), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		bound := time.Now()
		// The controller looks at the change at once, and at all volumes later.
		_ = rig.Wait(ctx, volumeSync+5*time.Second, "the volume to be reclaimed", func() (bool, error) { return r.volumeGone(ctx) })
		gone, err := r.volumeGone(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = os.Stat(content)
		r.figure("volume, content", "%s, %s after %v", thereOr(!gone), thereOr(err == nil), rounded(time.Since(bound)))
		if gone || err != nil {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleReclaimed, Object: boundAgain, Time: time.Now(), Detail: "its claim is there"})
		}
		r.proves(hold, 1, 0)
		hold.Clear()
		r.told(ctx, truth.PersistentVolumeClaims)
		if gone {
			return
		}
		r.figure("bound after the hold, after", "%v", rounded(r.converges(ctx, "the volume and its claim are bound", volumeSync+stepLimit, func() error {
			volume, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, boundAgain, metav1.GetOptions{})
			if err != nil || volume.Status.Phase != corev1.VolumeBound {
				return fmt.Errorf("the volume is not bound, %w", err)
			}
			return nil
		})))
		gomega.Expect(r.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
		r.figure("reclaimed with its claim, after", "%v", rounded(r.converges(ctx, "the volume goes with its claim", volumeSync+stepLimit, func() error {
			if gone, err := r.volumeGone(ctx); !gone || err != nil {
				return fmt.Errorf("the volume is there, %w", err)
			}
			return nil
		})))
	},
})

func thereOr(there bool) string { return map[bool]string{true: "there", false: "deleted"}[there] }

// releasedVolume makes a volume that is kept though the claim that it was bound to is gone.
func (r *run) releasedVolume(ctx context.Context, path string) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: boundAgain}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: "gone", UID: "gone"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
	}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the volume to be released", func() (bool, error) {
		volume, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, boundAgain, metav1.GetOptions{})
		return err == nil && volume.Status.Phase == corev1.VolumeReleased, err
	})
}

// claimOfVolume makes a claim to boundAgain.
func (r *run) claimOfVolume(ctx context.Context) *corev1.PersistentVolumeClaim {
	ginkgo.GinkgoHelper()
	claim, err := r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: boundAgain},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("none"), VolumeName: boundAgain,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return claim
}

// volumeGone reports whether boundAgain is deleted, or about to be, which is for ever.
func (r *run) volumeGone(ctx context.Context) (bool, error) {
	volume, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, boundAgain, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && volume.DeletionTimestamp != nil, err
}
