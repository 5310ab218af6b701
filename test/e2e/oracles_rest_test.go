// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// needed is the name of objects that something needs, needing of those that do.
const needed, needing = "needed", "needing"

// As above, of what the oracles judge by the owners, the finalizers and the statuses of any object.
var _ = ginkgo.Describe("The oracles", gates.StaleControllerConsistency(), ginkgo.Label("oracles", long), func() {
	ginkgo.It("find deletions, finalizers and statuses that the truth contradicts", func(ctx context.Context) {
		fixture, err := rig.Start(ctx, rig.Options{Arm: rig.P, Rest: true, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 1}}})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r := &run{Rig: fixture, idle: true, judges: []oracle.Judge{func(_ *truth.Recorder, d oracle.Deletion) string {
			if d.By == oracle.GarbageCollector {
				return "whether its owner is gone is judged for all objects alike"
			}
			return ""
		}}}
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if ginkgo.CurrentSpecReport().Failed() {
				dir, err := r.Keep()
				ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
			}
			gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
		})
		r.makeNeeded(ctx)
		r.makeOwned(ctx)
		gomega.Expect(r.Truth.Rest(ctx, r.Cluster.AdminConfig())).To(gomega.Succeed()) // The definition is new.
		r.judge(ctx)
		gomega.Expect(r.violations).To(gomega.BeEmpty())
		// An action may rest on what was so before for a quarter of that, and the truth may be late by the rest.
		r.passes(ctx, "what there is to be known", time.Now(), 4*proofAge)

		found := 0
		wrong := func(rule, detail string, do func() error) {
			ginkgo.GinkgoHelper()
			gomega.Expect(do()).To(gomega.Succeed(), detail)
			r.violations = nil
			gomega.Expect(r.standing(ctx)).To(gomega.Succeed())
			found++
			gomega.Expect(r.violations).To(gomega.HaveLen(found), "%s", detail)
			gomega.Expect(slices.ContainsFunc(r.violations, func(v oracle.Violation) bool {
				return v.Rule == rule && strings.Contains(v.Detail, detail)
			})).To(gomega.BeTrue(), "%s: %s in %v", rule, detail, r.violations)
		}
		wrong(oracle.RuleOwned, "Gadget gadget-0 is there", func() error {
			by, err := dynamic.NewForConfig(r.configAs(ctx, oracle.GarbageCollector))
			if err != nil {
				return err
			}
			return by.Resource(gadgets).Delete(ctx, "gadget-1", metav1.DeleteOptions{})
		})
		unfinalize := `{"metadata":{"finalizers":null}}`
		secret := func(name string) error {
			by := r.as(ctx, oracle.GarbageCollector)
			_, err := by.CoreV1().Secrets(metav1.NamespaceDefault).Patch(ctx, name, types.MergePatchType, []byte(unfinalize), metav1.PatchOptions{})
			return err
		}
		for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
			wrong(oracle.RuleFinalizer, finalizer, func() error { return secret(strings.ToLower(finalizer)) })
		}
		wrong(oracle.RuleFinalizer, "pod "+needing+" uses it", func() error {
			claims := r.as(ctx, "pvc-protection-controller").CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
			return withoutFinalizers(ctx, r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get, claims.Update, needed)
		})
		wrong(oracle.RuleFinalizer, "it is bound to default/"+needed, func() error {
			return withoutFinalizers(ctx, r.Client.CoreV1().PersistentVolumes().Get, r.as(ctx, "pv-protection-controller").CoreV1().PersistentVolumes().Update, needed)
		})
		wrong(oracle.RuleFinalizer, "persistentvolumeclaims default/"+needing+" uses it", func() error {
			classes := r.as(ctx, "volumeattributesclass-protection-controller").StorageV1().VolumeAttributesClasses()
			return withoutFinalizers(ctx, r.Client.StorageV1().VolumeAttributesClasses().Get, classes.Update, needed)
		})
		wrong(oracle.RuleFinalizer, "is of it", func() error {
			cidrs := r.as(ctx, "service-cidrs-controller").NetworkingV1().ServiceCIDRs()
			return withoutFinalizers(ctx, r.Client.NetworkingV1().ServiceCIDRs().Get, cidrs.Update, "kubernetes")
		})
		wrong(oracle.RuleFinalizer, "it runs, and so does Job "+needed, func() error {
			by := r.as(ctx, oracle.JobController).CoreV1().Pods(metav1.NamespaceDefault)
			_, err := by.Patch(ctx, r.podsOfJob()[0], types.MergePatchType, []byte(unfinalize), metav1.PatchOptions{})
			return err
		})
		wrong(oracle.RuleJobStatus, "1 pods are said to have succeeded, and 0 have", func() error {
			by := r.as(ctx, oracle.JobController).BatchV1().Jobs(metav1.NamespaceDefault)
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				job, err := by.Get(ctx, needed, metav1.GetOptions{})
				if err != nil {
					return err
				}
				job.Status.Succeeded = 1
				_, err = by.UpdateStatus(ctx, job, metav1.UpdateOptions{})
				return err
			})
		})
		wrong(oracle.RuleCronJobStatus, "there was no Job "+needed+"-10", func() error {
			by := r.as(ctx, oracle.CronJobController).BatchV1().CronJobs(metav1.NamespaceDefault)
			cronJob, err := by.Get(ctx, needed, metav1.GetOptions{})
			if err != nil {
				return err
			}
			cronJob.Status.LastScheduleTime = &metav1.Time{Time: time.Unix(600, 0)}
			_, err = by.UpdateStatus(ctx, cronJob, metav1.UpdateOptions{})
			return err
		})
		wrong(oracle.RuleBudgetStatus, "it allows 1 evictions, 1 pods are healthy, and 1 are wanted", func() error {
			by := r.as(ctx, oracle.DisruptionController).PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				budget, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Get(ctx, needed, metav1.GetOptions{})
				if err != nil {
					return err
				}
				budget.Status.DisruptionsAllowed = 1
				_, err = by.UpdateStatus(ctx, budget, metav1.UpdateOptions{})
				return err
			})
		})
		wrong(oracle.RuleQuotaStatus, "it counts 0 pods, and there are", func() error {
			by := r.as(ctx, oracle.QuotaController).CoreV1().ResourceQuotas(metav1.NamespaceDefault)
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				quota, err := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Get(ctx, needed, metav1.GetOptions{})
				if err != nil {
					return err
				}
				quota.Status.Used[corev1.ResourcePods] = resource.MustParse("0")
				_, err = by.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
				return err
			})
		})
		wrong(oracle.RuleJobRuns, "it has not finished, by ttl-after-finished-controller", func() error {
			return r.as(ctx, "ttl-after-finished-controller").BatchV1().Jobs(metav1.NamespaceDefault).Delete(ctx, needed, metav1.DeleteOptions{})
		})
		wrong(oracle.RuleNamespaceStays, "its namespace is not being deleted", func() error {
			by := r.as(ctx, oracle.NamespaceController).CoreV1().ConfigMaps(metav1.NamespaceDefault)
			return by.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + needing})
		})
	}, ginkgo.SpecTimeout(5*time.Minute))
})

// withoutFinalizers updates an object so that it has none.
func withoutFinalizers[T metav1.Object](ctx context.Context, get func(context.Context, string, metav1.GetOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error), name string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(object.GetFinalizers()) == 0 {
			return fmt.Errorf("%s has no finalizer", name)
		}
		object.SetFinalizers(nil)
		_, err = update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// makeNeeded makes a volume that is bound to a claim that a pod uses, a class that another claim has, a Job that runs, a CronJob, a budget that
// wants the pod to stay, and a quota that counts it.
func (r *run) makeNeeded(ctx context.Context) {
	ginkgo.GinkgoHelper()
	succeeds := func(_ any, err error) {
		ginkgo.GinkgoHelper()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	succeeds(r.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: needed}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: once, Capacity: storage, StorageClassName: "none", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
	}}, metav1.CreateOptions{}))
	succeeds(r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: needed},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: once, StorageClassName: new("none"), VolumeName: needed, Resources: corev1.VolumeResourceRequirements{Requests: storage},
		}}, metav1.CreateOptions{}))
	pod := workload.Orphan(needing, needing, r.Cluster.Nodes().Names()[0])
	pod.Spec.Volumes = []corev1.Volume{{Name: needed, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: needed}}}}
	succeeds(r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
	succeeds(r.Client.StorageV1().VolumeAttributesClasses().Create(ctx, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: needed},
		DriverName: "example.com", Parameters: map[string]string{"speed": "high"}}, metav1.CreateOptions{}))
	gomega.Expect(createClaim(ctx, r, needing, new(needed))).To(gomega.Succeed())
	job := workload.Job(needed, 1)
	job.Spec.Completions = new(int32(3))
	job.Spec.Template.Spec.SchedulerName = noScheduler // so that it never ends
	succeeds(r.Client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{}))
	cronJob := workload.CronJob(needed)
	cronJob.Spec.Suspend = new(true)
	succeeds(r.Client.BatchV1().CronJobs(cronJob.Namespace).Create(ctx, cronJob, metav1.CreateOptions{}))
	succeeds(r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: needed},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}}}, metav1.CreateOptions{}))
	succeeds(r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: needed},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}}}, metav1.CreateOptions{}))
	r.eventually(ctx, "the budget and the quota to be looked at", func() (bool, error) {
		budget, err := r.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Get(ctx, needed, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		quota, err := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Get(ctx, needed, metav1.GetOptions{})
		used := quota.Status.Used[corev1.ResourcePods]
		return err == nil && budget.Status.CurrentHealthy == 1 && used.Value() > 0, err
	})
	r.eventually(ctx, "a pod of the Job", func() (bool, error) {
		got, err := r.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(ctx, needed, metav1.GetOptions{})
		return err == nil && got.Status.Active == 1, err
	})
	r.eventually(ctx, "the volume to be bound", func() (bool, error) {
		volume, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, needed, metav1.GetOptions{})
		return err == nil && volume.Status.Phase == corev1.VolumeBound, err
	})
	r.eventually(ctx, "the finalizer of the class", func() (bool, error) {
		class, err := r.Client.StorageV1().VolumeAttributesClasses().Get(ctx, needed, metav1.GetOptions{})
		return err == nil && len(class.Finalizers) > 0, err
	})
}

// makeOwned makes a custom object that another one owns, ConfigMaps of Secrets that nobody deletes but that have the finalizers of deletions, and one of nobody.
func (r *run) makeOwned(ctx context.Context) {
	ginkgo.GinkgoHelper()
	objects := r.define(ctx)
	owner, err := objects.Resource(gadgets).Get(ctx, "gadget-0", metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = objects.Resource(gadgets).Patch(ctx, "gadget-1", types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"ownerReferences":[{"apiVersion":"%s/v1","kind":"Gadget","name":"gadget-0","uid":%q}]}}`, gadgets.Group, owner.GetUID()), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	maps := func(name string, owners ...metav1.OwnerReference) {
		_, err := r.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		name := strings.ToLower(finalizer)
		secret, err := r.Client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}}}, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		maps(name, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID, BlockOwnerDeletion: new(true)})
	}
	maps(needing)
}

// podsOfJob are the names of the Job's pods.
func (r *run) podsOfJob() (names []string) {
	for _, e := range r.Truth.At(truth.Pods, truth.Latest) {
		if e.Object.(*corev1.Pod).Labels[batchv1.JobNameLabel] == needed {
			names = append(names, e.Name)
		}
	}
	return names
}
