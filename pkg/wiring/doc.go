// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wiring connects this project's objects to one another and to the
// seams of the patched kube-controller-manager: for each term of leadership
// it makes one tracker, one prover and one monitor, has them look at the
// controllers' caches, and hands out every controller's consistency store.
//
// With StaleControllerConsistency off nothing of it is set, and upstream's own
// stores are in force.
package wiring
