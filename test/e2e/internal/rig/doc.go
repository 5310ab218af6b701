// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rig is what one scenario runs on for one arm: a faultrig with that arm's kube-controller-manager, and
// the truth recorder, which goes to the apiserver directly.
//
// After a failure Keep leaves the evidence in the cluster's directory:
//
//	logs/               what the components said, and the audit log
//	evidence/truth/     every change of the recorded resources
//	evidence/proxy.jsonl the proxy's interventions
package rig
