// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package display

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// New returns a screen for a file: in place if it is a terminal that can do that.
func New(out *os.File) Screen {
	fd := int(out.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return &plain{out: out, begin: time.Now(), said: map[string]string{}}
	}
	return &terminal{
		out:    out,
		colour: os.Getenv("NO_COLOR") == "",
		size: func() (int, int) {
			columns, rows, err := term.GetSize(fd)
			if err != nil || columns < 1 || rows < 1 {
				return 80, 24
			}
			return columns, rows
		},
	}
}

// terminal redraws by going up to where the last view began.
type terminal struct {
	out    io.Writer
	size   func() (columns, rows int)
	colour bool

	drawn         []Line
	columns, rows int
}

// Show draws the view over the last one.
func (t *terminal) Show(v View) {
	columns, rows := t.size()
	lines := v.Lines(columns)
	// The cursor rests on the line below the last one; a view as tall as the window would scroll.
	if limit := max(rows-1, 1); len(lines) > limit {
		lines = lines[:limit]
	}
	lines = slices.Clone(lines)
	for i := range lines {
		// The last column stays free: a terminal with a full line is undecided where the cursor is.
		lines[i].Text = Cut(lines[i].Text, columns-1)
	}
	if columns == t.columns && rows == t.rows && slices.Equal(lines, t.drawn) {
		return
	}
	var b strings.Builder
	b.WriteString("\x1b[?25l\r")
	switch {
	case t.drawn == nil:
	case columns != t.columns || rows != t.rows:
		// The terminal has broken, joined or scrolled the old lines as it likes: begin on a clean window.
		b.WriteString("\x1b[H\x1b[J")
	case len(t.drawn) > 0:
		fmt.Fprintf(&b, "\x1b[%dA", len(t.drawn))
	}
	for _, line := range lines {
		code := sgr[line.Style]
		if !t.colour {
			code = ""
		}
		b.WriteString(code + line.Text)
		if code != "" {
			b.WriteString("\x1b[0m")
		}
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J\x1b[?25h")
	_, _ = io.WriteString(t.out, b.String()) // a terminal that is gone comes as a signal
	t.drawn, t.columns, t.rows = lines, columns, rows
}
