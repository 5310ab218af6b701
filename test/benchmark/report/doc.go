// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report makes of samples what people and tools read: medians and goals, a Markdown table, Go's benchmark format
// for benchstat, and PerfData for perfdash.
//
// Everything is made from the files of one folder, [RunFile] and [SamplesFile], so it can be made again at any time.
package report
