// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spec reads the files that declare benchmarks.
//
// A file is one YAML document. A field that does not exist, a value that makes no sense and a goal for a figure that
// the workload does not yield are errors, each of one line that names the file.
package spec
