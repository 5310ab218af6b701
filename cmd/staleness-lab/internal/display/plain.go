// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package display

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// plain says each fact once, with the time since the beginning.
type plain struct {
	out   io.Writer
	begin time.Time
	said  map[string]string
}

// Show says what changed.
func (p *plain) Show(v View) {
	for _, fact := range v.Facts() {
		if fact.Text == "" || p.said[fact.Key] == fact.Text {
			continue
		}
		p.said[fact.Key] = fact.Text
		first, rest, more := strings.Cut(fact.Text, "\n")
		fmt.Fprintf(p.out, "%7.1fs  %s\n", time.Since(p.begin).Seconds(), Clean(first))
		for more {
			var line string
			line, rest, more = strings.Cut(rest, "\n")
			fmt.Fprintf(p.out, "          %s\n", Clean(line))
		}
	}
}
