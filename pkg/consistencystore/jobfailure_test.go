// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// jobPod is a pod of the Job ns/web in the phase, with an index if that is not negative.
func jobPod(name string, phase corev1.PodPhase, index int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{}, Finalizers: []string{batchv1.JobTrackingFinalizer},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(new(ownerMeta()), batchv1.SchemeGroupVersion.WithKind("Job"))}},
		Spec: podTemplate().Spec, Status: corev1.PodStatus{Phase: phase}}
	if index >= 0 {
		pod.Annotations[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(index)
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = "0"
	}
	return pod
}

// A Job fails by a limit, and its running pods are deleted, only if its spec is proven: the limit may have been raised. What
// cannot be raised, and a failure that the status shows, needs no proof.
func TestAJobFailsByALimitOnlyIfProven(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	failed := jobPod("failed", corev1.PodFailed, -1)
	for name, tc := range map[string]struct {
		limit  func(j *batchv1.Job)
		others []*corev1.Pod
		index  int // of the pod that runs
		// needsProof is whether the failure does.
		needsProof bool
	}{
		"deadline": {func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds, j.Status.StartTime = new(int64(60)), &metav1.Time{Time: time.Now().Add(-time.Hour)}
		}, nil, -1, true},
		"backoff limit": {func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(0)) }, []*corev1.Pod{failed}, -1, true},
		"failed indexes": {func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Completions = new(batchv1.IndexedCompletion), new(int32(3))
			j.Spec.BackoffLimitPerIndex, j.Spec.MaxFailedIndexes = new(int32(0)), new(int32(0))
		}, []*corev1.Pod{jobPod("failed", corev1.PodFailed, 0)}, 1, true},
		"pod failure policy": {func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "Broken", Status: corev1.ConditionTrue}}}}}
		}, []*corev1.Pod{func() *corev1.Pod {
			broken := failed.DeepCopy()
			broken.Status.Conditions = []corev1.PodCondition{{Type: "Broken", Status: corev1.ConditionTrue}}
			return broken
		}()}, -1, false},
		"deadline, told": {func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds, j.Status.StartTime = new(int64(60)), &metav1.Time{Time: time.Now().Add(-time.Hour)}
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}
		}, nil, -1, false},
	} {
		for _, arm := range []string{"stock", "unproven", "proven"} {
			t.Run(name+", "+arm, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &unproven{}
					if arm != "stock" {
						consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
							if arm == "proven" {
								return consistency.NewNoopConsistencyStore()
							}
							return store
						})
						defer consistency.SetProvider(nil)
					}
					j := &batchv1.Job{ObjectMeta: ownerMeta(), Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(2)), BackoffLimit: new(int32(6)),
						CompletionMode: new(batchv1.NonIndexedCompletion), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate()}}
					tc.limit(j)
					client := fake.NewClientset(j, jobPod("running", corev1.PodRunning, tc.index))
					for _, pod := range tc.others {
						require.NoError(t, client.Tracker().Add(pod))
					}
					ctx, cancel := context.WithCancel(t.Context())
					factory := informers.NewSharedInformerFactory(client, 0)
					jm, err := job.NewController(ctx, client, factory.Core().V1().Pods(), factory.Batch().V1().Jobs(), nil, nil)
					require.NoError(t, err)
					factory.Start(ctx.Done())
					done := make(chan struct{})
					go func() {
						defer close(done)
						jm.Run(ctx, 1)
					}()
					time.Sleep(time.Minute)
					cancel()
					<-done
					factory.Shutdown()
					deleted := false
					for _, action := range client.Actions() {
						deleted = deleted || action.Matches("delete", "pods")
					}
					now, err := client.BatchV1().Jobs("ns").Get(t.Context(), "web", metav1.GetOptions{})
					require.NoError(t, err)
					finished := false
					for _, c := range now.Status.Conditions {
						finished = finished || c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
					}
					if arm == "unproven" && tc.needsProof {
						require.Contains(t, store.asked, jobs)
						require.False(t, deleted, "the limit may have been raised")
						require.False(t, finished)
						return
					}
					require.NotContains(t, store.asked, jobs)
					require.True(t, deleted)
					require.True(t, finished)
				})
			})
		}
	}
}
