// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

const (
	eachObjectWaits   = "each of its objects waits for a proof as new as the start of leadership"
	decisionsAreLater = "what may do harm waits for a newer proof, or for a live read"
	readsAllThereIs   = "it follows every resource that there is, and one that cannot be listed would hold up all; it reads an object and its owners live before it deletes it, and proves all of its graph before it takes off an orphan finalizer"
)

// startAtOnce are the controllers that start as soon as their informers have synced, and why.
var startAtOnce = map[string]string{
	names.CronJobController:               eachObjectWaits,
	names.DaemonSetController:             eachObjectWaits,
	names.DeploymentController:            eachObjectWaits,
	names.JobController:                   eachObjectWaits,
	names.ReplicaSetController:            eachObjectWaits,
	names.ReplicationControllerController: eachObjectWaits,
	names.StatefulSetController:           eachObjectWaits,
	names.DeviceTaintEvictionController:   decisionsAreLater,
	names.GarbageCollectorController:      readsAllThereIs,
	names.NodeLifecycleController:         decisionsAreLater,
	names.ResourceQuotaController:         decisionsAreLater,
	names.TaintEvictionController:         decisionsAreLater,
}

// WaitsToStart says whether a controller, by its name in --controllers, waits before it starts until the caches that it reads are
// proven as new as the start of leadership.
func WaitsToStart(name string) bool { return startAtOnce[name] == "" }

// StartAtOnce are the controllers that do not, by why.
func StartAtOnce() map[string][]string {
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(startAtOnce)) {
		out[startAtOnce[name]] = append(out[startAtOnce[name]], name)
	}
	return out
}
