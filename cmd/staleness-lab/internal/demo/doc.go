// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs stories on arms, shows what is going on in each, and prints one table of what happened.
package demo
