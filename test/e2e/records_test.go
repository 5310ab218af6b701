// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// recording are the controllers that record their writes, by the service accounts that make them.
var recording = map[string]string{
	oracle.DaemonSetController:  "daemonset",
	"replicaset-controller":     "replicaset",
	"replication-controller":    "replicationcontroller",
	"statefulset-controller":    "statefulset",
	"job-controller":            "job",
	"horizontal-pod-autoscaler": "horizontalpodautoscaler",
}

// makeWork has each of these controllers create, update and delete what it can.
func makeWork(ctx context.Context, client kubernetes.Interface) {
	ginkgo.GinkgoHelper()
	const ns = metav1.NamespaceDefault
	labels := func(name string) map[string]string { return map[string]string{"app": name} }
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: workload.Image}}}}
	}
	set := func(name string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: labels(name)}, Template: template(name), PodManagementPolicy: appsv1.ParallelPodManagement}}
	}
	claiming := set("claiming")
	claiming.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	claiming.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}
	batch := template("batch")
	batch.Spec.RestartPolicy = corev1.RestartPolicyNever

	try := func(_ any, err error) { gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred()) }
	apps := client.AppsV1()
	try(apps.StatefulSets(ns).Create(ctx, set("plain"), metav1.CreateOptions{}))
	try(apps.StatefulSets(ns).Create(ctx, claiming, metav1.CreateOptions{}))
	try(apps.Deployments(ns).Create(ctx, workload.Deployment("scaled", 5), metav1.CreateOptions{}))
	try(client.CoreV1().ReplicationControllers(ns).Create(ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(3)), Selector: labels("old"), Template: new(template("old"))}}, metav1.CreateOptions{}))
	try(client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: batchv1.JobSpec{Completions: new(int32(3)), Parallelism: new(int32(3)), Template: batch}}, metav1.CreateOptions{}))
	// It needs no metrics to find that there are more pods than it may have.
	try(client.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "scaled"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 2, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "scaled"}}}, metav1.CreateOptions{}))
	gomega.Eventually(ctx, func(ctx context.Context) (int32, error) {
		s, err := apps.StatefulSets(ns).Get(ctx, "plain", metav1.GetOptions{})
		return s.Status.ReadyReplicas, err
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(gomega.BeEquivalentTo(3))

	roll := []byte(`{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
	scale := []byte(`{"spec":{"replicas":1}}`)
	try(apps.StatefulSets(ns).Patch(ctx, "plain", types.StrategicMergePatchType, roll, metav1.PatchOptions{}))
	try(apps.StatefulSets(ns).Patch(ctx, "claiming", types.MergePatchType, scale, metav1.PatchOptions{}))
	try(client.CoreV1().ReplicationControllers(ns).Patch(ctx, "old", types.MergePatchType, scale, metav1.PatchOptions{}))
	try(apps.DaemonSets(ns).Patch(ctx, "gates-on", types.StrategicMergePatchType, roll, metav1.PatchOptions{}))
	gomega.Eventually(ctx, func(ctx context.Context) (string, error) {
		plain, err := apps.StatefulSets(ns).Get(ctx, "plain", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		rc, err := client.CoreV1().ReplicationControllers(ns).Get(ctx, "old", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		d, err := apps.Deployments(ns).Get(ctx, "scaled", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(plain.Status.UpdatedReplicas, rc.Status.Replicas, *d.Spec.Replicas), nil
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(gomega.Equal("3 1 2"))
}

// everyWriteIsRecorded compares the audit log with what the process says that it has recorded.
func everyWriteIsRecorded(ctx context.Context, cluster *controlplane.Cluster, kcm *controlplane.KCM) {
	ginkgo.GinkgoHelper()
	var log oracle.Log
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		metrics := page(ctx, kcm, "/metrics")
		events, err := log.Read(cluster.APIServers()...)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		wrote, what := map[string]int{}, map[string]map[string]int{}
		for _, e := range oracle.Writes(events) {
			controller, ok := recording[e.ServiceAccount()]
			if !ok || e.ObjectRef.Resource == "events" || e.ResponseStatus.Code >= 300 {
				continue
			}
			wrote[controller]++
			if what[controller] == nil {
				what[controller] = map[string]int{}
			}
			what[controller][e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource]++
		}
		for _, controller := range recording {
			g.Expect(wrote[controller]).To(gomega.BeNumerically(">", 1), "%s wrote something (V)", controller)
			g.Expect(sumOf(metrics, "stale_controller_recorded_writes_total", fmt.Sprintf("controller=%q", controller))).
				To(gomega.BeEquivalentTo(wrote[controller]), "records of %s, which wrote %v", controller, what[controller])
		}
		g.Expect(sumOf(metrics, "stale_controller_unrecorded_writes_total")).To(gomega.BeZero())
	}).WithTimeout(patience).WithPolling(time.Second).Should(gomega.Succeed())
}
