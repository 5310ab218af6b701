// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile compares the CPU profiles of two arms, as "pprof -diff_base" does: by function, and by package of this
// project. Times are those of one turn, so arms with different numbers of turns compare.
package profile
