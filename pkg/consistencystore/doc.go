// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistencystore is the consistency store of every controller
// (k8s.io/kubernetes/pkg/controller/util/consistency): it says which objects
// must not be reconciled yet, whether what a reconcile has read is fresh
// enough for a disruptive action, and who waits for what.
//
// Own writes are the tracker's. A store adds the writes whose answers were
// lost, the start of leadership, and proofs of what was read. A reconcile
// waits for these a second at most, then puts the action off and has the
// object come back to the queue; what it lacked is proven before the next
// reconcile reads, which holds a worker for aheadLimit at most. What can never
// be proven is given up after a while, as each reason says.
//
// Methods of a [Store] are safe for concurrent use.
package consistencystore
