// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// isStillReleased is isVolumeReleased for a volume that was read live. It has not been released if it is bound to another claim
// than the one for which it was to be reclaimed: the cache may lack that.
func (ctrl *PersistentVolumeController) isStillReleased(logger klog.Logger, decided, live *v1.PersistentVolume) (bool, error) {
	if consistencyutil.Proves(ctrl.consistencyStore) && (live.UID != decided.UID || claimOf(live) != claimOf(decided)) {
		logger.V(2).Info("The volume was bound to another claim, and is not reclaimed", "volumeName", live.Name)
		return false, nil
	}
	return ctrl.isVolumeReleased(logger, live)
}

func claimOf(volume *v1.PersistentVolume) (claim v1.ObjectReference) {
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	return claim
}
