// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// deploymentCleanup is found by a test and by a scenario.
var deploymentCleanup = Mutant{
	Name: "deployment-cleanup", Protection: "a ReplicaSet is proven to be old and empty before it is cleaned up", File: deployment + "prove.go",
	Old: "	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource)\n}\n\n// waits",
	New: "	return nil\n}\n\n// waits",
}

// deployments are the protections of Deployment that tests are about.
var deployments = []Tested{
	{
		Mutant: Mutant{
			Name: "deployment-new-pods", Protection: "a new template is rolled out while a scale-down waits, as far as there is room", File: deployment + "sync.go",
			Old: "waits(err) && !d.Spec.Paused && deploymentutil.IsRollingUpdate(d)",
			New: "waits(err) && d.Spec.Paused && deploymentutil.IsRollingUpdate(d)",
		},
		Package: compositionTests, Test: "TestADeploymentRollsWhileItsScaleDownWaits",
	},
	{
		Mutant: Mutant{
			Name: "deployment-scale-down", Protection: "a Deployment and its ReplicaSets are proven before one is scaled down", File: deployment + "prove.go",
			Old: "	case newScale >= *rs.Spec.Replicas:",
			New: "	case newScale >= *rs.Spec.Replicas || true:",
		},
		Package: "pkg/consistencystore", Test: "TestADeploymentWaitsForWhatMayHarm/old_pods_of_a_rolling_update",
	},
	{
		Mutant: Mutant{
			Name: "deployment-restart", Protection: "no pods of a ReplicaSet that was there before start beside old ones either", File: deployment + "prove.go",
			Old: "newRS != nil && *newRS.Spec.Replicas >= *d.Spec.Replicas {",
			New: "newRS != nil {",
		},
		Package: "pkg/consistencystore", Test: "TestADeploymentWaitsForWhatMayHarm/pods_started_again",
	},
	{
		Mutant: Mutant{
			Name: "deployment-paused", Protection: "a Deployment that recreates and is paused starts no pods beside old ones that are not deleted yet", File: deployment + "prove.go",
			Old: "oldPodsRunning(newRS, oldRSs, podMap) {",
			New: "oldPodsRunning(newRS, oldRSs, podMap) && false {",
		},
		Package: compositionTests, Test: "TestADeploymentThatRecreatesIsPausedWhileItsPodsWait",
	},
	{
		Mutant: Mutant{
			Name: "deployment-paused-proof", Protection: "a Deployment that recreates and is paused starts no pods beside old ones that its caches lack", File: deployment + "prove.go",
			Old: "if err := dc.proveStart(ctx, d, newRS, oldRSs); err != nil {",
			New: "if err := dc.proveStart(ctx, d, newRS, oldRSs); err != nil && false {",
		},
		Package: compositionTests, Test: "TestADeploymentThatRecreatesIsPausedWithPodsUnseen",
	},
	{
		Mutant:  deploymentCleanup,
		Package: "pkg/consistencystore", Test: "TestADeploymentWaitsForWhatMayHarm/an_old_ReplicaSet_when_all_is_done",
	},
	{
		Mutant: Mutant{
			Name: "deployment-repair", Protection: "a rolling update starts new pods without a proof", File: deployment + "prove.go",
			Old: "	case newScale >= *rs.Spec.Replicas:",
			New: "	case newScale == *rs.Spec.Replicas:",
		},
		Package: "pkg/consistencystore", Test: "TestADeploymentWaitsForWhatMayHarm/more_new_pods_of_a_rolling_update",
	},
	{
		Mutant: Mutant{
			Name: "deployment-pods", Protection: "a Deployment's pods are those that its ReplicaSets control", File: "pkg/consistencystore/view.go",
			Old: `	if kind.Kind == "Deployment" {`,
			New: `	if kind.Kind == "Deployment" && false {`,
		},
		Package: "pkg/consistencystore", Test: "TestADeploymentDependsOnItsOwn/a_pod_more",
	},
}
