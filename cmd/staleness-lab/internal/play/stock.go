// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import "k8s.io/apimachinery/pkg/runtime/schema"

var (
	nodes        = schema.GroupResource{Resource: "nodes"}
	pods         = schema.GroupResource{Resource: "pods"}
	daemonSets   = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	statefulSets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// stockHolding says what stock upstream does while a resource is held, as docs/track-record.md and docs/measurements.md do.
func stockHolding(gr schema.GroupResource) string {
	const unseen = "does not measure the age of caches, and does not notice a stalled watch"
	switch gr {
	case nodes:
		return "deletes DaemonSet pods for a stale view of nodes, and evicts pods for a taint that is gone; it " + unseen
	case pods:
		return "took 6 nodes down at once in a rolling update with maxUnavailable 3; it " + unseen
	case daemonSets:
		return "deletes pods (15 of 15) for a node selector that has been changed back; it " + unseen
	case statefulSets:
		return "deletes a pod that should run, and its volume claim (make demo, story c); it " + unseen
	case leases:
		return "marks living nodes Unknown (119 of 300) with its staleness gates off, and reads their leases live with them on; it " + unseen
	}
	return unseen
}

// Stock upstream in the other faults.
const (
	stockNodeDeath = "reads the lease of every dead node live in every pass, without end"
	stockRefused   = "does the same, in as many attempts: a quota is no staleness"
)

// tryHolding is what to try while a resource is held.
var tryHolding = map[schema.GroupResource][]string{
	nodes: {
		"try now: kubectl label nodes --all tier=web",
		"    and: kubectl patch daemonset sample --type=merge -p '" + selectTier + "'",
		"Its cache knows no such node, and would have every pod of the DaemonSet deleted.",
	},
}

// selectTier has the DaemonSet run on the labelled nodes only. Pods are not replaced, so that what is deleted is deleted
// for the nodes.
const selectTier = `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"spec":{"nodeSelector":{"tier":"web"}}}}}`
