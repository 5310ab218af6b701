// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// isStillReleased is isVolumeReleased for a volume that was read live. It has not been released if it is bound to another claim
// than the one for which it was to be reclaimed, nor if its claim is on the server: the caches may lack either.
func (ctrl *PersistentVolumeController) isStillReleased(ctx context.Context, decided, live *v1.PersistentVolume) (bool, error) {
	logger := klog.FromContext(ctx)
	proves := consistencyutil.Proves(ctrl.consistencyStore)
	if proves && (live.UID != decided.UID || claimOf(live) != claimOf(decided)) {
		logger.V(2).Info("The volume was bound to another claim, and is not reclaimed", "volumeName", live.Name)
		return false, nil
	}
	released, err := ctrl.isVolumeReleased(logger, live)
	if err != nil || !released || !proves {
		return released, err
	}
	ref := live.Spec.ClaimRef
	claim, err := ctrl.kubeClient.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if claim.UID == ref.UID && (claim.Spec.VolumeName == "" || claim.Spec.VolumeName == live.Name) {
		logger.V(2).Info("The claim of the volume is there, and the volume is not reclaimed", "volumeName", live.Name, "PVC", klog.KObj(claim))
		return false, nil
	}
	return true, nil
}

func claimOf(volume *v1.PersistentVolume) (claim v1.ObjectReference) {
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	return claim
}
