// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultrig starts what every run with faults stands on: a real control plane with one
// kube-controller-manager that reaches the apiserver only through a fault proxy. Everybody else goes to the
// apiserver directly.
package faultrig
