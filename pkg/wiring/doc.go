// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wiring connects this project's objects to the seams of the patched
// kube-controller-manager: the shared resource-version tracker becomes every
// controller's consistency store (k8s.io/kubernetes/pkg/controller/util/consistency), whose proofs come from the one
// prover, and disruptive actions ask the breaker and the guards.
//
// With StaleControllerConsistency off nothing of it is set, and upstream's own
// stores are in force.
package wiring
