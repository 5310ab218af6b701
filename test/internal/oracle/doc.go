// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oracle holds the standing oracles of the fault scenarios: each judges, after a run, what the truth
// recorder and the apiserver's audit log say that the controllers did.
//
//	S1  Surplus: at most one live pod per DaemonSet and node beyond surge, at every resource version
//	S2  Unjustified: every delete, taint and NotReady was justified by the true state at that moment
//	S3  BehindOwnWrites: no reconcile ran on a cache behind the owner's own writes
//	L   Digest, DaemonSetDone: the end state and the number of creates and deletes, to compare
//
// An oracle returns the violations that it can prove from outside, never a suspicion: what could also be
// explained by somebody else's write or by a race is not counted. So none means none proven.
package oracle
