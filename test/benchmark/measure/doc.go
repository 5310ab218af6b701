// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure reads what processes say of themselves: scrapes of /metrics and the differences between two of them,
// CPU time and peak memory from /proc, and the machine.
//
// A [Series] keeps every scrape of one turn, and what the turn's judge found, in a folder that hack/tools/slo evaluates the
// recording rules of the SLOs on.
package measure
