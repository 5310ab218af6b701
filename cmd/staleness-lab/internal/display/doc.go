// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package display shows something that changes while it runs: redrawn in place on a terminal, one line
// per change anywhere else.
//
// A [View] says the same thing twice: as lines for a terminal and as facts, of which a pipe is told the
// ones that changed. On a terminal nothing is drawn wider or taller than the window, each redraw is one
// write, and nothing is written when nothing changed.
package display
