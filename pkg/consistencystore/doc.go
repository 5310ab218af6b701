// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistencystore is the consistency store of every controller
// (k8s.io/kubernetes/pkg/controller/util/consistency): it says which objects
// must not be reconciled yet, whether what a reconcile has read is fresh
// enough for a disruptive action, and which objects wait for what.
//
// The tracker has the controller's own writes. A store adds the writes whose answers were
// lost, the start of leadership, and proofs of what was read. A reconcile
// waits for a proof for a second at most, then puts the action off, and the
// object comes back to the queue. The store proves what was missing before the next
// reconcile reads, which delays a worker for aheadLimit at most. It gives up
// what can never be proven after a while, as each reason says.
//
// Methods of a [Store] are safe for concurrent use.
package consistencystore
