// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance tests, on a real apiserver and etcd and from the client's side, what this project builds
// on: that resource versions of every type can be compared (KEP-5504), what get, list and watch answer for
// every resource version, and that custom resources can change their version under our
// kube-controller-manager. docs/conformance.md maps each section of the documents to its test.
package conformance
