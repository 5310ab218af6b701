// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package circuitbreaker keeps controllers from disruptive actions on a cache that may be older than
// what the action depends on, when the cache can only be judged by a live read.
//
// Budget is the one budget of live reads of the process: fences and proofs (package freshness) have a
// budget of their own, and are always tried first.
//
// Nodes is the breaker of node lifecycle: it says which silent nodes are dead, and which are only
// missing from a stale cache of leases.
package circuitbreaker
