// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

const (
	ownWrites  = "It waits until the caches have the controller's own writes for the object."
	refused    = "It carries the resource version of what was read: the apiserver refuses one that is too old."
	repeatable = "It says what is so, and the next reconcile corrects it."
)

var (
	byUID  = []Precondition{UID}
	asRead = []Precondition{UID, ResourceVersion}
)

// everyOwner is the test by which all writes of a workload controller for an object are known as its own.
var everyOwner = []string{"TestEveryWriteHasAnOwner"}

// status is a rule for what a workload controller says of an object, as these scenarios show, too.
func status(resource string, scenarios ...int) Rule {
	return Rule{Verbs: "update patch", Resources: resource + "/status", Mode: View, Why: ownWrites + " " + refused, Scenarios: scenarios, Tests: everyOwner}
}

// retried is the rule of a controller that reads the object live when its status is refused, and writes it once more.
func retried(status Rule) Rule {
	status.Why += " Then the controller reads the object live, and writes the status to that unless it is another one, made again under its name."
	status.Tests = append(slices.Clip(status.Tests), "TestTheStatusOfAPredecessorIsNotWritten")
	return status
}

// pods are the rules of a controller that makes pods for an object, as these scenarios show, and deletes some of them.
func pods(creates []int, deletes Rule) []Rule {
	deletes.Verbs, deletes.Resources = "delete", "pods"
	return []Rule{
		{Verbs: "create", Resources: "pods", Mode: View, Why: ownWrites, Scenarios: creates, Tests: everyOwner},
		deletes,
		{Verbs: "patch update", Resources: "pods", Mode: InCode, Why: "It adopts or releases a pod after a live read of the owner, and names the pod's UID."},
	}
}

// workloads are the controllers that make and delete pods for an object.
var workloads = []Controller{
	{Name: names.DaemonSetController, Client: "daemon-set-controller", Rules: append(pods([]int{1, 2, 17}, Rule{Mode: View, Scenarios: []int{4, 5, 30},
		Why: "The DaemonSet, its pods, its revisions and the nodes are proven before the deletion."}),
		retried(status("daemonsets.apps", 1, 3)),
		Rule{Verbs: "create update patch", Resources: "controllerrevisions.apps", Mode: View, Why: ownWrites, Scenarios: []int{5}},
		Rule{Verbs: "delete", Resources: "controllerrevisions.apps", Mode: View, Why: "The DaemonSet, its pods and its revisions are proven before an old one is deleted.", Scenarios: []int{30}},
	)},
	{Name: names.ReplicaSetController, Client: "replicaset-controller", Rules: append(pods([]int{2}, Rule{Mode: View, Scenarios: []int{30},
		Why: "The ReplicaSet and its pods are proven before a scale-down."}),
		retried(status("replicasets.apps")),
		Rule{Verbs: "update patch", Resources: "replicasets.apps", Mode: InCode, Why: refused},
	)},
	{Name: names.ReplicationControllerController, Client: "replication-controller", Rules: append(pods([]int{2}, Rule{Mode: View, Scenarios: []int{30},
		Why: "The ReplicationController and its pods are proven before a scale-down."}),
		retried(status("replicationcontrollers")),
		Rule{Verbs: "update patch", Resources: "replicationcontrollers", Mode: InCode, Why: refused},
	)},
	{Name: names.StatefulSetController, Client: "statefulset-controller", Rules: append(pods([]int{2}, Rule{Mode: View, Scenarios: []int{30},
		Why: "The StatefulSet and its pods are proven before a scale-down or a replacement."}),
		status("statefulsets.apps"),
		Rule{Verbs: "create update patch delete", Resources: "controllerrevisions.apps", Mode: View, Why: ownWrites, Tests: everyOwner},
		Rule{Verbs: "create", Resources: "persistentvolumeclaims", Mode: Exempt, Why: "The claim has the name of its pod: a second one is refused."},
		Rule{Verbs: "update delete", Resources: "persistentvolumeclaims", Mode: View, Scenarios: []int{30},
			Why: "The StatefulSet and its pods are proven before a claim gets an owner, whose end is that of the claim."},
	)},
	{Name: names.JobController, Client: "job-controller", Rules: append(pods(nil, Rule{Mode: View, Scenarios: []int{30},
		Why: "The Job and its pods are proven before pods are deleted because of parallelism, suspension, a limit or a deadline."}),
		status("jobs.batch"),
		Rule{Verbs: "update patch", Resources: "jobs.batch", Mode: InCode, Why: refused},
		Rule{Verbs: "create update patch", Resources: "workloads.scheduling.k8s.io podgroups.scheduling.k8s.io", Mode: Exempt,
			Why: "They have the name of the Job: a second one is refused."},
	)},
	{Name: names.DeploymentController, Client: "deployment-controller", Rules: []Rule{
		{Verbs: "create", Resources: "replicasets.apps", Mode: View, Scenarios: []int{37},
			Why: ownWrites + " The Deployment, its ReplicaSets and its pods are proven before one that recreates starts new pods beside an old ReplicaSet."},
		{Verbs: "update", Resources: "replicasets.apps", Mode: View, Scenarios: []int{37},
			Why: "Likewise. The Deployment and its ReplicaSets are proven before a scale-down, for a rolling update its pods, too. Scaling up waits for nothing else, but in one that recreates and is paused, for old pods to be gone."},
		{Verbs: "patch", Resources: "replicasets.apps", Mode: InCode, Why: "It adopts or releases a ReplicaSet after a live read of the Deployment, and names the ReplicaSet's UID."},
		{Verbs: "delete", Resources: "replicasets.apps", Mode: View, Scenarios: []int{37}, Why: "The Deployment and its ReplicaSets are proven before an old one is cleaned up."},
		{Verbs: "update", Resources: "deployments.apps deployments.apps/status", Mode: InCode, Why: refused},
		{Verbs: "update", Resources: "pods", Mode: Exempt, Why: "It is permitted, and never sent."},
	}},
	{Name: names.CronJobController, Client: "cronjob-controller", Rules: []Rule{
		{Verbs: "create", Resources: "jobs.batch", Mode: Bounded, Scenarios: []int{36},
			Why: "The CronJob is proven before, or read live; where neither can be had, for startingDeadlineSeconds or 30 s at most."},
		{Verbs: "delete", Resources: "jobs.batch", Mode: Bounded, Tests: []string{"TestCronJobIsSuspendedUnseen", "TestFinishedJobsThatAreTooManyAreDeletedByName"},
			Why: "As for the Job that is created. Finished Jobs that are too many are deleted by their names, without a proof, as on stock."},
		{Verbs: "update patch", Resources: "jobs.batch", Mode: InCode, Why: refused},
		{Verbs: "update", Resources: "cronjobs.batch cronjobs.batch/status", Mode: InCode, Why: refused},
		{Verbs: "delete", Resources: "pods", Mode: Exempt, Why: "It is permitted, and never sent."},
	}},
	{Name: names.HorizontalPodAutoscalerController, Client: "horizontal-pod-autoscaler", Rules: []Rule{
		{Verbs: "update", Resources: "*/scale", Mode: Bounded, Scenarios: []int{47},
			Why: "It waits for its own writes, and reads the scale live. The autoscaler and the pods that it counts are proven before replicas are lowered, for 5 min at most. They are raised at once."},
		{Verbs: "update", Resources: "horizontalpodautoscalers.autoscaling/status", Mode: View, Why: ownWrites, Tests: []string{"TestAutoscalerWaitsForItsOwnWrites"}},
	}},
	{Name: names.DisruptionController, Client: "disruption-controller", Rules: []Rule{
		{Verbs: "update", Resources: "poddisruptionbudgets.policy/status", Mode: Bounded, Scenarios: []int{34},
			Why: "Pods and scales are proven before more evictions are allowed, for 5 min at most. Fewer are allowed at once."},
		{Verbs: "update patch", Resources: "pods/status", Mode: InCode, Why: refused},
	}},
	{Name: names.ResourceQuotaController, Client: "resourcequota-controller", Rules: []Rule{
		{Verbs: "update", Resources: "resourcequotas/status", Mode: Bounded, Scenarios: []int{33},
			Why: "What a quota counts is proven before a value falls, for 5 min at most. A value rises at once."},
	}},
	{Name: names.PodGarbageCollectorController, Client: "pod-garbage-collector", Rules: []Rule{
		{Verbs: "delete", Resources: "pods", Mode: View, Scenarios: []int{32, 44}, Preconditions: byUID,
			Why: "It carries the pod's UID. The pods are proven before some that have ended are deleted, the nodes before pods on nodes out of service."},
		{Verbs: "patch", Resources: "pods/status", Mode: InCode, Why: "It carries the pod's UID."},
	}},
	{Name: names.GarbageCollectorController, Client: "generic-garbage-collector", Rules: []Rule{
		{Verbs: "delete", Resources: "*", Mode: InCode, Scenarios: []int{23}, Preconditions: byUID,
			Why: "The object and its owners are read live before. An owner that was once absent is taken to be so, until a relist: then it is read live, too. It carries the UID."},
		{Verbs: "patch update", Resources: "*", Mode: Bounded, Scenarios: []int{35},
			Why: "The graph is proven to have all dependents before an owner that leaves them goes or a foreground deletion ends, 5 min at most."},
	}},
	{Name: names.TTLAfterFinishedController, Client: "ttl-after-finished-controller", Rules: []Rule{
		{Verbs: "delete", Resources: "jobs.batch", Mode: InCode, Preconditions: byUID, Why: "The Job is read live before, and it carries the UID."},
	}},
	{Name: names.PodGroupProtectionController, Client: names.PodGroupProtectionController, Rules: []Rule{
		{Verbs: "update", Resources: "podgroups.scheduling.k8s.io", Mode: Bounded, Scenarios: []int{42},
			Why: "The pods are proven before the finalizer is taken off, for 5 min at most. " + refused},
	}},
}
