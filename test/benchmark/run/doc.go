// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run runs benchmarks: it starts one cluster for the benchmarks that want the same one, has the arms take turns on
// it, and hands over a sample for each turn.
//
// What it promises of a turn: a new kube-controller-manager that leads, knows all nodes and has nothing left to do before
// the measuring begins; the same cluster for each arm; an independent recorder of what really happened. A turn in which
// the kube-controller-manager died, lost its leadership or did not reach the end state is an error, not a sample.
package run
