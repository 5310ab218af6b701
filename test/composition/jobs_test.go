// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// newIndexedJob has n indexes, all at once. Its pods fit on no node, so they do not finish.
func newIndexedJob(name string, n int32) *batchv1.Job {
	labels := map[string]string{batchv1.ControllerUidLabel: "uid-of-" + name, batchv1.JobNameLabel: name}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: name, UID: types.UID("uid-of-" + name)}, Spec: batchv1.JobSpec{
		Parallelism: &n, Completions: &n, BackoffLimit: new(int32(100)), Suspend: new(false), CompletionMode: new(batchv1.IndexedCompletion),
		PodReplacementPolicy: new(batchv1.TerminatingOrFailed), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, RestartPolicy: corev1.RestartPolicyNever, Affinity: onNode("none"),
		}},
	}}
}

func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
	}}}
}

// podsOfIndex are the Job's pods of an index that are not being deleted.
func podsOfIndex(server *model.Server, job, index string) (pods []*corev1.Pod) {
	server.Look(func(truth model.Truth) { pods = truePodsOfIndex(truth, job, index) })
	return pods
}

func truePodsOfIndex(truth model.Truth, job, index string) (pods []*corev1.Pod) {
	for _, o := range truth.List(model.Pods) {
		pod := o.(*corev1.Pod)
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.Name == job && pod.Annotations[batchv1.JobCompletionIndexAnnotation] == index && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// makeSmaller has the Job "job" want three indexes, and deletes the pod of the first.
func makeSmaller(t *testing.T, server *model.Server) {
	t.Helper()
	model.Change(server, model.Jobs, traffic.Namespace, "job", func(job *batchv1.Job) {
		job.Spec.Completions, job.Spec.Parallelism = new(int32(3)), new(int32(3))
	})
	lost := podsOfIndex(server, "job", "0")
	require.Len(t, lost, 1)
	server.Delete(model.Pods, traffic.Namespace, lost[0].Name, nil)
}

// An index of a Job that lacks its pod gets one as soon as on stock while pods that are too many wait to be deleted, as an Indexed Job that was made smaller
// has both. It gets one pod, and the others are deleted once there is a proof. A quota that refuses it is asked as often as on stock.
func TestAnIndexIsMadeWhileADeletionWaits(t *testing.T) {
	const length = 30 * time.Minute
	for _, refused := range []bool{false, true} {
		took, creations := map[arms.Arm]time.Duration{}, map[arms.Arm]int{}
		for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
			synctest.Test(t, func(t *testing.T) {
				server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 3})
				server.Create(model.Jobs, newIndexedJob("job", 6))
				time.Sleep(time.Minute)
				tooMany := 0 // when the index got its pod: that its creation and the status after it are seen may prove the caches
				server.Observe = func(truth model.Truth, r *model.Request, done bool) {
					if done && r.Resource == model.Pods && r.Verb == "create" {
						creations[arm]++
						tooMany = len(truePodsOfIndex(truth, "job", "5"))
					}
				}
				f.Do(schedule.Step{Action: schedule.Unprovable, For: length}, tr.After)
				if refused {
					f.Do(schedule.Step{Action: schedule.Refuse, Target: "job", For: length - 5*time.Minute}, tr.After)
				}
				time.Sleep(time.Second)
				makeSmaller(t, server)
				began, waits := time.Now(), manager.Waits()
				for len(podsOfIndex(server, "job", "0")) == 0 && time.Since(began) < length {
					waits = manager.Waits()
					time.Sleep(time.Second)
				}
				took[arm] = time.Since(began)
				if arm == arms.Ours && !refused {
					require.Equal(t, 1, tooMany, "unproven")
					require.NotEmpty(t, waits)
				}
				time.Sleep(time.Until(began.Add(length + time.Minute)))
				for _, index := range []string{"0", "1", "2"} {
					require.Len(t, podsOfIndex(server, "job", index), 1, "%s: index %s", arm, index)
				}
				for _, index := range []string{"3", "4", "5"} {
					require.Empty(t, podsOfIndex(server, "job", index), "%s: index %s", arm, index)
				}
				require.Empty(t, manager.Waits())
			})
		}
		t.Logf("refused %v: index 0 after %v, creations %v", refused, took, creations)
		if refused {
			require.Greater(t, creations[arms.Stock], 10)
			require.LessOrEqual(t, creations[arms.Ours], creations[arms.Stock]*5/4+10)
			continue
		}
		require.Less(t, took[arms.Stock], 20*time.Second)
		require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+5*time.Second)
		require.Equal(t, creations[arms.Stock], creations[arms.Ours])
	}
}

// An index of a Job that replaces only failed pods gets none while pods that are too many wait to be deleted, as the Job never has more pods than it wants. It
// gets one as soon as they have a proof.
func TestAnIndexThatReplacesFailedPodsWaitsForADeletion(t *testing.T) {
	const length = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		server, f, tr, manager := start(t, arms.Ours, schedule.Schedule{Nodes: 3})
		job := newIndexedJob("job", 6)
		job.Spec.PodReplacementPolicy = new(batchv1.Failed)
		server.Create(model.Jobs, job)
		time.Sleep(time.Minute)
		f.Do(schedule.Step{Action: schedule.Unprovable, For: length}, tr.After)
		time.Sleep(time.Second)
		makeSmaller(t, server)
		for began := time.Now(); time.Since(began) < length-2*time.Second; time.Sleep(time.Second) {
			require.Empty(t, podsOfIndex(server, "job", "0"), "index 0 after %v", time.Since(began))
		}
		require.Len(t, podsOfIndex(server, "job", "5"), 1, "unproven")
		require.NotEmpty(t, manager.Waits())
		time.Sleep(time.Minute)
		for index, pods := range map[string]int{"0": 1, "1": 1, "2": 1, "3": 0, "4": 0, "5": 0} {
			require.Len(t, podsOfIndex(server, "job", index), pods, "index %s", index)
		}
		require.Empty(t, manager.Waits())
	})
}

// A Job whose deadline or limit of failures is raised unseen fails on stock, which deletes its pods. Ours goes on, as the server has it.
func TestAJobFailsByWhatTheServerHas(t *testing.T) {
	const deadline, held = 2 * time.Minute, 3 * time.Minute
	for name, tc := range map[string]struct {
		from, to func(*batchv1.JobSpec)
		fail     bool
	}{
		"a deadline": {
			func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(deadline.Seconds())) }, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = nil }, false},
		"a limit of failures": {
			func(s *batchv1.JobSpec) { s.BackoffLimit = new(int32(1)) }, func(s *batchv1.JobSpec) { s.BackoffLimit = new(int32(10)) }, true},
	} {
		for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
			synctest.Test(t, func(t *testing.T) {
				server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 3})
				job := newIndexedJob("job", 4)
				tc.from(&job.Spec)
				server.Create(model.Jobs, job)
				time.Sleep(deadline / 2)
				deletions := 0
				server.Observe = func(_ model.Truth, r *model.Request, done bool) {
					if done && r.Resource == model.Pods && r.Verb == "delete" {
						deletions++
					}
				}
				f.Do(schedule.Step{Action: schedule.Hold, Target: "jobs", For: held}, tr.After)
				model.Change(server, model.Jobs, traffic.Namespace, "job", func(job *batchv1.Job) { tc.to(&job.Spec) })
				for _, index := range []string{"0", "1"} {
					if pods := podsOfIndex(server, "job", index); tc.fail {
						require.Len(t, pods, 1)
						model.Change(server, model.Pods, traffic.Namespace, pods[0].Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
					}
				}
				time.Sleep(held - time.Second)
				require.Equal(t, arm == arms.Stock, deletions > 0, "%s: %s: pods that are deleted", name, arm)
				time.Sleep(2 * time.Minute)
				if arm == arms.Ours {
					require.Zero(t, deletions, name)
					for _, index := range []string{"0", "1", "2", "3"} {
						pods := slices.DeleteFunc(podsOfIndex(server, "job", index), func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
						require.Len(t, pods, 1, "%s: index %s", name, index)
					}
					require.Empty(t, manager.Waits())
				}
			})
		}
	}
}
