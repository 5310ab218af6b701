// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "os"

// tryLock trusts to chance: the ports are drawn at random from twelve thousand.
func tryLock(*os.File) error { return nil }

// noFollow is not to be had everywhere.
const noFollow = 0

// isOurs trusts the mode of the file.
func isOurs(os.FileInfo) bool { return true }
