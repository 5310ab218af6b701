// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory lists what every controller of kube-controller-manager, and the process itself, may write, and what keeps each
// write from doing harm on a stale cache.
//
// It promises:
//
//   - Every controller that the process knows is listed, and every write that upstream's roles permit to a controller has a
//     rule. Tests hold that against upstream's own lists, so that a rebase brings in nothing unseen.
//   - A write of a process under test that no rule names is found: the transport counts those of controllers, and every test on a real
//     control plane fails by one, whichever client of the process made it.
//   - A deletion that lacks the precondition which its rule promises is not sent by the transport.
//
// All else that protects a write stands at the decision, in the controller. docs/coverage.md is made of it.
package inventory
