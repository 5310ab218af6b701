// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evictionguard decides on evictions that are due, by the server's state and not by the cache alone.
//
// TaintGuard decides on those for the taints of nodes, DeviceTaintGuard on those for the taints of devices. Both ask
// for a proof of the caches first, and read from the server within the budget of package livereads if there is none.
package evictionguard
