// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// Kinds are the resources of the owners, by kind.
var Kinds = map[string]*model.Resource{
	"ReplicaSet": model.ReplicaSets, "DaemonSet": model.DaemonSets, "StatefulSet": model.StatefulSets, "Job": model.Jobs, "ReplicationController": model.RCs,
	"Deployment": model.Deployments,
}

// Surge is how many pods a Deployment that rolls may have besides, unless its owner says.
const Surge = 1

// firstImage is that of the template that an owner has at first.
const firstImage = "image:1"

// Unwanted is the label of a node where a DaemonSet wants no pod.
func Unwanted(owner string) string { return "example.com/without-" + owner }

// anywhereBut selects the nodes that do not have the label.
func anywhereBut(label string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist}}}},
	}}}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{ready(metav1.Now().Rfc3339Copy())},
			Allocatable: corev1.ResourceList{},
		},
	}
}

// newOwner is what the API's defaults make of a short manifest, the nth of a run.
func newOwner(o schedule.Owner, n int) (*model.Resource, model.Object) {
	meta := metav1.ObjectMeta{Namespace: namespaceOf(o), Name: o.Name}
	labels := map[string]string{"app": o.Name}
	replicas := int32(o.Replicas)
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: firstImage}}, RestartPolicy: corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(30)), SchedulerName: corev1.DefaultSchedulerName, DNSPolicy: corev1.DNSClusterFirst,
		},
	}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	kept := func(revisions int32) *int32 {
		if o.NoHistory {
			revisions = 0
		}
		return &revisions
	}
	switch o.Kind {
	case "ReplicaSet":
		return model.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{MinReadySeconds: int32(o.MinReady), Replicas: &replicas, Selector: selector, Template: template}}
	case "ReplicationController":
		return model.RCs, &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{MinReadySeconds: int32(o.MinReady), Replicas: &replicas, Selector: labels, Template: &template}}
	case "Deployment":
		unavailable, surge := o.MaxUnavailable, o.Surge
		if unavailable == 0 && surge == 0 {
			unavailable, surge = 1, Surge
		}
		strategy := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt(unavailable)), MaxSurge: new(intstr.FromInt(surge))}}
		if o.Recreate {
			strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}
		return model.Deployments, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{MinReadySeconds: int32(o.MinReady), Replicas: &replicas, Selector: selector, Template: template, Strategy: strategy,
			RevisionHistoryLimit: kept(2), ProgressDeadlineSeconds: new(int32(cmp.Or(o.Deadline, 600)))}}
	case "DaemonSet":
		template.Spec.Affinity = anywhereBut(Unwanted(o.Name))
		unavailable := max(1, o.MaxUnavailable)
		if o.Surge > 0 {
			unavailable = 0
		}
		strategy := appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(unavailable)), MaxSurge: new(intstr.FromInt(o.Surge))}}
		if o.Manual {
			strategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		}
		return model.DaemonSets, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			MinReadySeconds: int32(o.MinReady), Selector: selector, Template: template, RevisionHistoryLimit: kept(10), UpdateStrategy: strategy,
		}}
	case "StatefulSet":
		var claims []corev1.PersistentVolumeClaim
		if o.Claims {
			claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
		}
		policy := appsv1.OrderedReadyPodManagement
		if o.Parallel {
			policy = appsv1.ParallelPodManagement
		}
		strategy := appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(o.Partition))}}
		if o.MaxUnavailable > 0 {
			strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt(o.MaxUnavailable))
		}
		if o.Manual {
			strategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}
		scaled := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		if o.DropClaims {
			scaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		}
		return model.StatefulSets, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			MinReadySeconds: int32(o.MinReady), VolumeClaimTemplates: claims, PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: scaled},
			Replicas: &replicas, Selector: selector, Template: template, ServiceName: o.Name, RevisionHistoryLimit: kept(10), PodManagementPolicy: policy, UpdateStrategy: strategy,
		}}
	case "Job":
		completions := 4 * replicas
		if o.Short {
			completions = replicas
		}
		meta.UID = types.UID(fmt.Sprint("uid-of-", o.Name, "-", n))
		labels = map[string]string{batchv1.ControllerUidLabel: string(meta.UID), batchv1.JobNameLabel: o.Name}
		template.Labels = map[string]string{"app": o.Name, batchv1.ControllerUidLabel: string(meta.UID), batchv1.JobNameLabel: o.Name}
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		mode := batchv1.NonIndexedCompletion
		if o.Indexed {
			mode = batchv1.IndexedCompletion
		}
		replaced := batchv1.TerminatingOrFailed
		if o.EndFirst {
			replaced = batchv1.Failed
		}
		var deadline *int64
		if o.Deadline > 0 {
			deadline = new(int64(o.Deadline))
		}
		return model.Jobs, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			Parallelism: new(int32(2)), Completions: new(completions), BackoffLimit: new(int32(cmp.Or(o.Failures, 100))), Suspend: new(false),
			CompletionMode: &mode, PodReplacementPolicy: &replaced, ActiveDeadlineSeconds: deadline,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		}}
	}
	panic("no such kind: " + o.Kind)
}
