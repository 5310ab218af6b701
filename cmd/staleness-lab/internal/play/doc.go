// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package play carries out the faults that a user asks a running lab for, and says what Fresh KCM does about each.
// What it says of Fresh KCM is read from /stalenessz, the metrics, the audit log and the objects; what it says of stock
// upstream is from docs/track-record.md and docs/measurements.md.
package play
