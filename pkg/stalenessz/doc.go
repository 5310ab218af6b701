// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stalenessz is the page /stalenessz: how old every cache is, and what waits because a cache may be stale, of all
// terms of leadership of this process. A scrape of the metrics reads the same.
//
// It asks the server nothing, and what a reader can cost is bounded.
package stalenessz
