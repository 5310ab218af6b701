// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package livereads reads from the server what a disruptive action depends on, when the cache cannot be proven
// fresh.
//
// It promises:
//
//   - Budget bounds all live reads of the process, and divides them fairly among controllers and
//     resources. Fences and proofs (package freshness) have a budget of their own, and are always tried first.
//   - Reads sends one read for all callers that ask for the same object at the same time; they share its error, too.
//
// With Evidence, Verdict and PutOff other packages say what they verified, and what they put off.
package livereads
