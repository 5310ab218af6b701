// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench runs benchmarks, shows how far they are, and keeps what they found in a folder.
package bench
