// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wiring connects this project's objects to the seams of the patched
// kube-controller-manager: the shared resource-version tracker becomes every
// controller's consistency store (k8s.io/kubernetes/pkg/controller/util/consistency),
// and the controllers' clients record every write that a reconcile makes.
//
// With StaleControllerConsistency off nothing of it is set, and upstream's own
// stores are in force.
package wiring
