// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package display

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Clean makes a text safe to put on one line of a terminal: what is not printable ASCII, such as the
// colours and tabs of a log, would move the cursor or take an unknown number of columns.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, s)
}

// Cut returns the text, cleaned, in at most so many columns.
func Cut(s string, columns int) string {
	const mark = "..."
	s = Clean(s)
	switch {
	case len(s) <= columns:
		return s
	case columns <= 0:
		return ""
	case columns <= len(mark):
		return s[:columns]
	}
	return s[:columns-len(mark)] + mark
}

// Table aligns rows of cells in columns.
func Table(rows [][]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to a string
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// Wrap breaks the words after a label over as many lines as they need, each beginning at the label's end.
func Wrap(label string, words []string, columns int) []string {
	var lines []string
	line := label
	for _, word := range words {
		if len(line) > len(label) && len(line)+1+len(word) > columns-1 {
			lines = append(lines, line)
			line = strings.Repeat(" ", len(label))
		}
		if len(line) > len(label) {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Clock gives a duration as minutes and seconds, for a display that is redrawn once a second.
func Clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
