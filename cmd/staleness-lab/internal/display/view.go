// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package display

// View is what there is to show at one moment.
type View interface {
	// Lines are for a terminal with this many columns; what is longer is cut, what is too many left out.
	Lines(columns int) []Line
	// Facts are for everything else, in the order in which they are to be said.
	Facts() []Fact
}

// Line is one line on a terminal.
type Line struct {
	Text  string
	Style Style
}

// Style is how a whole line looks.
type Style int

// The styles; the terminal's own colours are used, so they are readable on any background.
const (
	Normal Style = iota
	Bold
	Good
	Bad
	Faint
)

var sgr = map[Style]string{Bold: "\x1b[1m", Good: "\x1b[32m", Bad: "\x1b[31m", Faint: "\x1b[2m"}

// Fact is one thing of which it is worth saying that it changed.
type Fact struct {
	// Key says what it is about and is not shown.
	Key string
	// Text is said when it differs from the last text with this key. Empty is not said.
	Text string
}

// Screen shows views, each in place of the one before.
type Screen interface {
	Show(View)
}
