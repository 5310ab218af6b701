// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lab runs the cluster of "staleness-lab up": it starts a control plane with Fresh KCM, nodes
// and a sample DaemonSet, keeps it running, and says at any moment what it knows of it.
package lab
