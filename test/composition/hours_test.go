// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// guarded has what quota, disruption and podgc look at.
var guarded = schedule.Schedule{
	Nodes: 3, Ended: 1, Tenants: []schedule.Tenant{{Name: tenant, Pods: 4, Hard: 5}}, Budgets: []schedule.Budget{{Over: tenant, MinAvailable: 4}},
	Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 4}},
}

// deployments are one that recreates and two that roll.
var deployments = schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{
	{Kind: "Deployment", Name: "recreated", Replicas: 3, Recreate: true}, {Kind: "Deployment", Name: "fewer", Replicas: 4}, {Kind: "Deployment", Name: "more", Replicas: 2},
}}

// hours are those of TestNothingCanBeProvenForAnHour.
var hours = []hour{
	{
		controller: "resourcequota", schedule: guarded,
		steps:  []schedule.Step{{Action: schedule.Empty, Target: tenant, N: 4}, {Action: schedule.SetHard, Target: tenant, N: 9}},
		goesOn: hardIsNine, soon: 2 * time.Second,
		done: func(truth model.Truth) bool {
			used := quotaOf(truth).Used[corev1.ResourcePods]
			return used.Value() == 0
		},
		late: 65 * time.Second,
	},
	{
		controller: "disruption", schedule: guarded,
		steps:  []schedule.Step{{Action: schedule.SetMin, Target: tenant, N: 1}},
		goesOn: func(truth model.Truth) bool { return budgetOf(truth).DesiredHealthy == 1 }, soon: 2 * time.Second,
		done: func(truth model.Truth) bool { return budgetOf(truth).DisruptionsAllowed == 3 },
		late: 65 * time.Second,
	},
	{
		controller: "podgc", schedule: guarded,
		steps:  []schedule.Step{{Action: schedule.EndPods, Target: tenant, N: 4}, {Action: schedule.SetHard, Target: tenant, N: 9}},
		goesOn: hardIsNine, soon: 2 * time.Second,
		done: oneEnded,
	},
	{
		name: "podgc, which deletes other pods meanwhile", controller: "podgc", schedule: guarded,
		steps:  []schedule.Step{{Action: schedule.EndPods, Target: tenant, N: 4}, {Action: schedule.SetHard, Target: tenant, N: 9}, {Action: schedule.NodeGone, N: 0, For: 3 * time.Hour, At: time.Minute}},
		goesOn: hardIsNine, soon: 2 * time.Second,
		done: oneEnded,
		late: 150 * time.Second, // Each of those deletions is a fence.
	},
	{
		// It runs each minute, and its Job of the minute before ends meanwhile.
		controller: "cronjob", schedule: schedule.Schedule{Nodes: 2, CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: "Allow", Keep: 1}}}, unread: "cronjobs",
		goesOn: func(truth model.Truth) bool {
			return len(cronJobOf(truth).Active) == 0 && cronJobOf(truth).LastSuccessfulTime.After(minute(11))
		}, soon: 58 * time.Second,
		done: func(truth model.Truth) bool { return !cronJobOf(truth).LastScheduleTime.Time.Before(minute(12)) },
		look: 80 * time.Second, late: 95 * time.Second, // Half of the time to its next run.
	},
	{
		controller: "horizontalpodautoscaler", schedule: schedule.Schedule{Nodes: 2, Autoscalers: []schedule.Autoscaler{
			{Name: "falls", Kind: "ReplicaSet", Metric: schedule.ByValue, Least: 1, Most: 9, Replicas: 6, Load: 6 * schedule.TargetLoad},
			{Name: "rises", Kind: "ReplicaSet", Metric: schedule.ByAverage, Least: 1, Most: 9, Replicas: 2, Load: 2 * schedule.TargetLoad},
		}},
		steps:  []schedule.Step{{Action: schedule.SetLoad, Target: "rises", N: 5 * schedule.TargetLoad}, {Action: schedule.SetLoad, Target: "falls", N: 2 * schedule.TargetLoad, At: 20 * time.Second}},
		goesOn: func(truth model.Truth) bool { return replicasOf(truth, "rises") == 5 }, soon: 19 * time.Second,
		done: func(truth model.Truth) bool { return replicasOf(truth, "falls") == 2 },
		late: 110 * time.Second, // It is looked at after 15 s.
	},
	{
		controller: "resourceclaim", schedule: schedule.Schedule{Nodes: 2, Claimers: []schedule.Claimer{{Name: "ends", Shared: []int{0}}, {Name: "remade", Own: 1}}}, unread: "pods",
		steps:  []schedule.Step{{Action: schedule.RemakeClaimer, Target: "remade", N: 1}, {Action: schedule.EndClaimer, Target: "ends", At: 15 * time.Second}},
		goesOn: remadeRuns, soon: 14 * time.Second,
		done: func(truth model.Truth) bool {
			return truth.Get(model.ResourceClaims, traffic.Namespace, traffic.SharedClaim(0)).(*resourcev1.ResourceClaim).Status.Allocation == nil
		},
	},
	{
		controller: "garbagecollector", schedule: schedule.Schedule{Nodes: 2, Families: []schedule.Family{{Kind: "ConfigMap", Name: "orphaned", ConfigMaps: 2, Widgets: 2}, {Kind: "ConfigMap", Name: "deleted", ConfigMaps: 2}}},
		steps:  []schedule.Step{{Action: schedule.RemoveOwner, Target: "orphaned", N: 2}, {Action: schedule.RemoveOwner, Target: "deleted", N: 0}},
		goesOn: func(truth model.Truth) bool { return familyOf(truth, "deleted") == 0 }, soon: 5 * time.Second,
		done: func(truth model.Truth) bool {
			return familyOf(truth, "orphaned") == 4 && truth.Get(model.ConfigMaps, traffic.Namespace, "orphaned") == nil
		},
		late: 65 * time.Second,
	},
	{
		// The first node is out of service from before the hour on.
		controller: "attachdetach", schedule: schedule.Schedule{Nodes: 4, Volumes: []schedule.Volume{{Name: "forced", Unmount: time.Second, Stays: true}, {Name: "moves", Node: 1, Unmount: time.Second}}},
		before: []schedule.Step{{Action: schedule.OutOfService, At: 5 * time.Minute, Delay: 2 * time.Minute, For: 3 * time.Hour}},
		steps:  []schedule.Step{{Action: schedule.MovePod, Target: "moves", N: 2}, {Action: schedule.SeizePod, Target: "forced", N: 3, At: 20 * time.Second}},
		goesOn: func(truth model.Truth) bool { return attachedTo(truth, "moves") == traffic.NodeName(2) }, soon: 19 * time.Second,
		done: func(truth model.Truth) bool { return attachedTo(truth, "forced") == traffic.NodeName(3) },
	},
	{
		name: "deployment, which recreates", controller: "deployment", schedule: deployments,
		steps:  []schedule.Step{{Action: schedule.Scale, Target: "more", N: 5}, {Action: schedule.Roll, Target: "recreated", At: 15 * time.Second}},
		goesOn: moreRun, soon: 14 * time.Second,
		done: func(truth model.Truth) bool { return podsOf(truth, rolled("recreated")) == 3 },
	},
	{
		name: "deployment, which is scaled down", controller: "deployment", schedule: deployments,
		steps:  []schedule.Step{{Action: schedule.Scale, Target: "more", N: 5}, {Action: schedule.Scale, Target: "fewer", N: 1, At: 15 * time.Second}},
		goesOn: moreRun, soon: 14 * time.Second,
		done: fewerIsLeft,
	},
	scaledDown("ReplicaSet"), scaledDown("ReplicationController"), scaledDown("StatefulSet"),
	replacing(scaledDown("ReplicaSet")), replacing(scaledDown("StatefulSet")),
	{
		controller: "daemonset", schedule: schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "rolled", Replicas: 3}, {Kind: "DaemonSet", Name: "lacks", Replicas: 3}}},
		steps:  []schedule.Step{{Action: schedule.DeletePod, Target: "lacks"}, {Action: schedule.Roll, Target: "rolled", At: 15 * time.Second}},
		goesOn: func(truth model.Truth) bool { return podsOf(truth, runs("lacks")) == 3 }, soon: 14 * time.Second,
		done: func(truth model.Truth) bool { return podsOf(truth, rolled("rolled")) == 3 },
	},
	{
		// Its pods run for 20 s, all at the same time.
		controller: "job", schedule: schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "Job", Name: "job", Replicas: 20}}},
		steps:  []schedule.Step{{Action: schedule.Scale, Target: "job", N: 3}, {Action: schedule.Scale, Target: "job", N: 1, At: 6 * time.Second}},
		goesOn: func(truth model.Truth) bool { return podsOf(truth, runs("job")) == 3 }, soon: 2 * time.Second,
		done: func(truth model.Truth) bool { return podsOf(truth, runs("job")) <= 1 },
		look: 12 * time.Second, late: 25 * time.Second, // Its pods end.
	},
	{
		controller: "tainteviction", schedule: scaledDown("ReplicaSet").schedule, unread: "nodes",
		steps:  []schedule.Step{{Action: schedule.Scale, Target: "more", N: 5}, {Action: schedule.Taint, For: 3 * time.Hour, At: 15 * time.Second}},
		goesOn: moreRun, soon: 14 * time.Second,
		done: func(truth model.Truth) bool {
			return podsOf(truth, func(p *corev1.Pod) bool { return p.Spec.NodeName == traffic.NodeName(0) }) == 0
		},
	},
	{
		controller: "devicetainteviction", schedule: schedule.Schedule{Nodes: 2, DeviceTaints: true, Claimers: []schedule.Claimer{{Name: "stays", Own: 1}, {Name: "remade", Own: 1}}}, unread: "resourceclaims",
		steps:  []schedule.Step{{Action: schedule.RemakeClaimer, Target: "remade", N: 1}, {Action: schedule.TaintDevices, At: 15 * time.Second}},
		goesOn: remadeRuns, soon: 14 * time.Second,
		done: func(truth model.Truth) bool { return len(truth.List(model.Pods)) == 0 },
	},
	{
		// Stock waits, too: it reads the leases live before it marks a node.
		controller: "nodelifecycle", schedule: scaledDown("ReplicaSet").schedule, unread: "leases", asStock: true,
		steps:  []schedule.Step{{Action: schedule.KillNode, For: 3 * time.Hour}, {Action: schedule.Scale, Target: "more", N: 5}},
		goesOn: func(truth model.Truth) bool { return podsOf(truth, of("more")) == 5 }, soon: 14 * time.Second,
		done: func(truth model.Truth) bool {
			return truth.Get(model.Nodes, "", traffic.NodeName(0)).(*corev1.Node).Status.Conditions[0].Status == corev1.ConditionUnknown
		},
		look: arms.Grace + 20*time.Second,
	},
	{
		controller: "endpoint", schedule: schedule.Schedule{
			Nodes: 2, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "pods", Replicas: 2}},
			Endpoints: true, Services: []schedule.Service{{Name: "gone", Over: "pods"}, {Name: "web", Over: "pods"}},
		}, unread: "services",
		steps:  []schedule.Step{{Action: schedule.Scale, Target: "pods", N: 4}, {Action: schedule.ServiceGone, Target: "gone", For: 3 * time.Hour, At: 15 * time.Second}},
		goesOn: func(truth model.Truth) bool { return addressesOf(truth)["Endpoints"] == 4 }, soon: 14 * time.Second,
		done: func(truth model.Truth) bool { return truth.Get(model.Endpoints, traffic.Namespace, "gone") == nil },
	},
	unused("service-cidr", "servicecidrs", 10*time.Second), unused("volumeattributesclass-protection", "volumeattributesclasses", 0), unused("podgroup-protection", "podgroups", 0),
}

// unused has an object that nothing uses be deleted, after pods, and another object, were made. Its controller lets grace pass first, on stock, too.
func unused(controller, resource string, grace time.Duration) hour {
	object := func(truth model.Truth, n int) model.Object {
		r, o := traffic.Protected(resource, n)
		return truth.Get(r, o.GetNamespace(), o.GetName())
	}
	return hour{
		controller: controller, schedule: schedule.Schedule{Nodes: 2, Finalizers: true, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "more", Replicas: 2}}},
		before: []schedule.Step{{Action: schedule.MakeProtected, Target: resource, At: time.Minute}},
		steps: []schedule.Step{
			{Action: schedule.Scale, Target: "more", N: 5}, {Action: schedule.MakeProtected, Target: resource, N: 1}, {Action: schedule.DeleteProtected, Target: resource, At: 15 * time.Second},
		},
		goesOn: func(truth model.Truth) bool { return moreRun(truth) && len(object(truth, 1).GetFinalizers()) == 1 }, soon: 14 * time.Second,
		done: func(truth model.Truth) bool { return object(truth, 0) == nil },
		late: 80*time.Second + grace,
	}
}

// scaledDown has one owner of the kind be scaled down, after another was scaled up and lacked a pod.
func scaledDown(kind string) hour {
	return hour{
		controller: strings.ToLower(kind), schedule: schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: kind, Name: "fewer", Replicas: 4}, {Kind: kind, Name: "more", Replicas: 2}}},
		steps: []schedule.Step{
			{Action: schedule.Scale, Target: "more", N: 5}, {Action: schedule.DeletePod, Target: "more", At: 8 * time.Second}, {Action: schedule.Scale, Target: "fewer", N: 1, At: 15 * time.Second},
		},
		goesOn: moreRun, soon: 14 * time.Second,
		done: fewerIsLeft,
	}
}

// replacing has the other owner lack a pod again meanwhile. What its controller writes then is a fence.
func replacing(h hour) hour {
	h.name = h.controller + ", which replaces a pod meanwhile"
	h.steps = append(h.steps, schedule.Step{Action: schedule.DeletePod, Target: "more", At: time.Minute})
	h.done = func(truth model.Truth) bool { return fewerIsLeft(truth) && moreRun(truth) }
	h.late = 65 * time.Second
	return h
}

func quotaOf(truth model.Truth) corev1.ResourceQuotaStatus {
	return truth.Get(model.Quotas, tenant, tenant).(*corev1.ResourceQuota).Status
}

func budgetOf(truth model.Truth) policyv1.PodDisruptionBudgetStatus {
	return truth.Get(model.Budgets, tenant, tenant).(*policyv1.PodDisruptionBudget).Status
}

func cronJobOf(truth model.Truth) batchv1.CronJobStatus {
	return truth.Get(model.CronJobs, traffic.Namespace, "cronjob").(*batchv1.CronJob).Status
}

// minute is the nth of a history.
func minute(n int) time.Time { return time.Date(2000, time.January, 1, 0, n, 0, 0, time.UTC) }

func replicasOf(truth model.Truth, name string) int {
	return int(*truth.Get(model.ReplicaSets, traffic.Namespace, name).(*appsv1.ReplicaSet).Spec.Replicas)
}

// familyOf counts the objects of a family that have no owner.
func familyOf(truth model.Truth, name string) (n int) {
	for _, r := range []*model.Resource{model.ConfigMaps, model.Widgets} {
		for _, o := range truth.List(r) {
			if o.GetLabels()[traffic.FamilyLabel] == name && len(o.GetOwnerReferences()) == 0 {
				n++
			}
		}
	}
	return n
}

// attachedTo are the nodes to which a volume is attached, or is to be.
func attachedTo(truth model.Truth, volume string) string {
	var nodes []string
	for _, o := range truth.List(model.Attachments) {
		if a := o.(*storagev1.VolumeAttachment); *a.Spec.Source.PersistentVolumeName == volume {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return strings.Join(nodes, " ")
}

func podsOf(truth model.Truth, in func(*corev1.Pod) bool) (n int) {
	for _, o := range truth.List(model.Pods) {
		if in(o.(*corev1.Pod)) {
			n++
		}
	}
	return n
}

func of(app string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Labels["app"] == app }
}

func runs(app string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return of(app)(p) && p.Status.Phase == corev1.PodRunning }
}

func remadeRuns(truth model.Truth) bool {
	return podsOf(truth, func(p *corev1.Pod) bool {
		return p.Name == "remade" && len(p.Status.ResourceClaimStatuses) == 1 && p.Status.Phase == corev1.PodRunning
	}) == 1
}

func rolled(app string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return of(app)(p) && p.Spec.Containers[0].Image != "image:1" }
}

func moreRun(truth model.Truth) bool { return podsOf(truth, runs("more")) == 5 }

func fewerIsLeft(truth model.Truth) bool { return podsOf(truth, of("fewer")) == 1 }

func hardIsNine(truth model.Truth) bool {
	hard := quotaOf(truth).Hard[corev1.ResourcePods]
	return hard.Value() == 9
}

func ended(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }

func oneEnded(truth model.Truth) bool { return podsOf(truth, ended) <= 1 }
