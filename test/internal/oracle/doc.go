// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oracle holds the standing oracles of the fault scenarios: each judges, after a run, what the truth
// recorder and the apiserver's audit log say that the controllers did.
//
//	S1  Surplus: at most one live pod per DaemonSet and node beyond surge, at every resource version
//	S2  Unjustified: what was deleted, tainted and marked not Ready was so by the true state when the request arrived
//	S3  BehindOwnWrites: no reconcile ran on a cache behind the owner's own writes
//	L   Digest, DaemonSetDone, EndState: the end state and the number of creates and deletes, to compare; Late: the dead are marked in time
//	F   Bystanders: how long what no fault touches took, to compare
//
// An oracle returns the violations that it can prove from outside, never a suspicion: what could also be
// explained by somebody else's write or by a race is not counted. So none means none proven.
//
// None has a tolerance that somebody chose. Where resource versions say what came first, times are not looked at. Where they are,
// what counts is when requests arrived at the apiserver, which its audit log says to the microsecond, and two things are allowed: what
// the run itself shows the truth recorder to be late by (Lag), and the two seconds that docs/status.md says an action may rest on.
package oracle
