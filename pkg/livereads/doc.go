// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package livereads reads from the server what a disruptive action depends on, when the cache cannot be proven
// fresh.
//
// It promises:
//
//   - Budget bounds all live reads of the process, and shares what it allows fairly among controllers and
//     resources. Fences and proofs (package freshness) have a budget of their own, and are always tried first.
//   - Reads sends one read for all who ask for the same object at the same time, its error included.
//
// Evidence, Verdict and PutOff are the words in which the rooms above say what they verified, and what they put off.
package livereads
