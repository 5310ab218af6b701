// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package story runs fault stories against one kube-controller-manager and returns what happened as data.
//
// A story starts a faultrig, which is a real control plane whose kube-controller-manager reaches the apiserver only through a
// fault proxy; has the truth recorder and the oracles of the scenarios, on the path without faults, record and judge; injects a
// fault; and returns a [Result]. It returns an error when it could not run, or could not prove that the fault was injected, and
// never because the kube-controller-manager did wrong: that is for the figures' outcomes to say, which are computed from what was
// measured and know nothing of arms.
package story
