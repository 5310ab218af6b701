// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// choice says what of upstream's e2e suites is run: what run matches and skip does not.
type choice struct {
	run  []string
	skip []excluded
}

type excluded struct{ pattern, reason string }

// readChoice reads lines of "run<tab>PATTERN" and "skip<tab>PATTERN<tab>REASON".
func readChoice(path string) (*choice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &choice{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		switch {
		case len(fields) == 2 && fields[0] == "run":
			c.run = append(c.run, fields[1])
		case len(fields) == 3 && fields[0] == "skip":
			c.skip = append(c.skip, excluded{fields[1], fields[2]})
		default:
			return nil, fmt.Errorf("%s:%d: neither run, tab, pattern nor skip, tab, pattern, tab, reason", path, n)
		}
		if _, err := regexp.Compile(fields[1]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return c, lines.Err()
}

// flags are ginkgo's for one of the patterns that are run.
func (c *choice) flags(pattern string) []string {
	out := []string{"--ginkgo.focus=" + pattern}
	for _, s := range c.skip {
		out = append(out, "--ginkgo.skip="+s.pattern)
	}
	return out
}

// reason says why a spec was not run, or that it should have been.
func (c *choice) reason(name string) string {
	for _, x := range c.skip {
		if regexp.MustCompile(x.pattern).MatchString(name) {
			return x.reason
		}
	}
	return ""
}

// selected are the patterns whose text contains the filter.
func (c *choice) selected(filter string) (out []string) {
	for _, p := range c.run {
		if strings.Contains(p, filter) {
			out = append(out, p)
		}
	}
	return out
}
