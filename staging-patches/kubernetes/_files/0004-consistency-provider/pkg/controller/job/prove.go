// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// proveDeletion asks for proof of the Job and its pods before active pods are deleted because of what the Job calls for.
func (jm *Controller) proveDeletion(ctx context.Context, pods []*v1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	return consistencyutil.ProveFresh(ctx, jm.consistencyStore, jobGroupResource, podGroupResource)
}

// proveFailure asks for proof of the Job before it fails by a limit that may have been raised, and its active pods are
// deleted. The other reasons cannot be changed, and a failure that is told already is not taken back.
func (jm *Controller) proveFailure(ctx context.Context, jobCtx *syncJobCtx) error {
	failed := jobCtx.finishedCondition
	if failed == nil || failed.Type != batch.JobFailureTarget || len(jobCtx.activePods) == 0 {
		return nil
	}
	switch failed.Reason {
	case batch.JobReasonBackoffLimitExceeded, batch.JobReasonDeadlineExceeded, batch.JobReasonMaxFailedIndexesExceeded:
		return consistencyutil.ProveFresh(ctx, jm.consistencyStore, jobGroupResource)
	}
	return nil
}
