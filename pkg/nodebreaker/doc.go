// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodebreaker is the breaker of node lifecycle: it says which silent nodes are dead, and which are only missing
// from a stale cache of leases.
//
// While the cache of leases is shown to be stale the breaker is open, and node lifecycle judges nodes by live lists of
// the leases. A node whose death can be verified neither by a proof nor by a live read keeps its condition.
package nodebreaker
