// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control lets a second command ask a running lab for a fault. The lab serves on loopback; the state file,
// which only its owner can read, has the address and a token that every request must carry.
package control
