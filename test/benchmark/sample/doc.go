// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sample is what benchmarks measure: the figures there are, one sample for each turn of an arm, and the run that
// they belong to. Samples are kept as JSON lines, as they come, so that a run that is broken off loses none.
package sample
